from prismcore import errors


def test_every_error_is_exported_and_has_an_exit_code():
    classes = {n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.PrismError)}
    assert classes == set(errors.__all__)
    assert {getattr(errors, n).exit_code for n in classes} == {1, 3, 4}
