"""Chakra execution traces on paper, written with the protobuf package from a schema of our own writing.

Field numbers: mlcommons/chakra, ``schema/protobuf/et_def.proto``.
"""

from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.encoder import _VarintBytes

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = ("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
            "sfixed32", "sfixed64", "bool", "string", "bytes")  # fmt: skip
TYPES = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
         "COMM_RECV_NODE", "COMM_COLL_NODE")  # fmt: skip


def _classes():
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="et", syntax="proto3")
    enum = file.enum_type.add(name="NodeType")
    for number, name in enumerate(TYPES):
        enum.value.add(name=name, number=number)

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for field, number, type, repeated in fields:
            one = made.field.add(name=field, number=number, label=3 if repeated else 1)
            if type in _SCALARS:
                one.type = getattr(_FIELD, f"TYPE_{type.upper()}")
            else:
                one.type = _FIELD.TYPE_ENUM if type == "NodeType" else _FIELD.TYPE_MESSAGE
                one.type_name = f".et.{type}"
        return made

    values = []
    for at, scalar in enumerate(_SCALARS):
        message(f"{scalar}_list", ("values", 1, scalar, True))
        values += [
            (f"{scalar}_val", 3 + 2 * at, scalar, False),
            (f"{scalar}_list", 4 + 2 * at, f"{scalar}_list", False),
        ]
    attribute = message(
        "AttributeProto", ("name", 1, "string", False), ("doc_string", 2, "string", False), *values
    )
    attribute.oneof_decl.add(name="value")
    for field in attribute.field[2:]:
        field.oneof_index = 0
    message("GlobalMetadata", ("version", 1, "string", False), ("attr", 2, "AttributeProto", True))
    message(
        "Node", ("id", 1, "uint64", False), ("name", 2, "string", False), ("type", 3, "NodeType", False),
        ("ctrl_deps", 4, "uint64", True), ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False), ("duration_micros", 7, "uint64", False),
        ("attr", 10, "AttributeProto", True),
    )  # fmt: skip
    pool = DescriptorPool()
    pool.Add(file)
    return [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"et.{n}"))
        for n in ("Node", "GlobalMetadata")
    ]


Node, GlobalMetadata = _classes()


def attribute(holder, name, value, kind=None):
    made = holder.attr.add(name=name)
    if isinstance(value, list):
        kind = kind or ("bool_list" if value and isinstance(value[0], bool) else "int64_list")
        getattr(made, kind).values.extend(value)
    else:
        kinds = {bool: "bool_val", int: "int64_val", str: "string_val", float: "double_val"}
        setattr(made, kind or kinds[type(value)], value)


def node(id, type, *, name=None, deps=(), ctrl=(), start=0, micros=0, **attributes):
    made = Node(id=id, name=name or f"n{id}", type=TYPES.index(f"{type}_NODE"), start_time_micros=start)
    made.duration_micros = micros
    made.data_deps.extend(deps)
    made.ctrl_deps.extend(ctrl)
    for key, value in attributes.items():
        attribute(made, key, value)
    return made


def collective(id, kind, size, **more):
    return node(id, "COMM_COLL", is_cpu_op=False, comm_type=kind, comm_size=size, **more)


def write(path, nodes, **metadata):
    meta = GlobalMetadata(version="0.0.4")
    for key, value in metadata.items():
        attribute(meta, key, value)
    bodies = [message.SerializeToString() for message in (meta, *nodes)]
    path.write_bytes(b"".join(_VarintBytes(len(body)) + body for body in bodies))
    return path


def write_json(path, nodes):
    """As the project's jsonizer: one document a message, each behind the other."""
    documents = [json_format.MessageToJson(m) for m in (GlobalMetadata(version="0.0.4"), *nodes)]
    path.write_text("\n".join(documents))
    return path
