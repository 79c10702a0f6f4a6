// Reading traces: exact numbers, what is kept, and texts that are damaged.
#include <doctest/doctest.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "base/error.h"
#include "kineto/decimal.h"
#include "kineto/reader.h"

using namespace prism;

namespace {

class File {
 public:
  explicit File(const std::string& text, bool gzip = false) {
    path_ = std::filesystem::temp_directory_path() / ("kineto." + std::to_string(::getpid()));
    if (gzip) {
      const gzFile file = gzopen(path_.c_str(), "wb");
      REQUIRE(file != nullptr);
      REQUIRE(gzwrite(file, text.data(), static_cast<unsigned>(text.size())) ==
              static_cast<int>(text.size()));
      gzclose(file);
    } else {
      std::ofstream(path_, std::ios::binary) << text;
    }
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return path_.string(); }
  void cut(std::uintmax_t bytes) const { std::filesystem::resize_file(path_, bytes); }
  std::uintmax_t size() const { return std::filesystem::file_size(path_); }

 private:
  std::filesystem::path path_;
};

const KinetoOptions options{.left_out = {"python_function"},
                            .details = {"Collective name"},
                            .named = {"record_param_comms"},
                            .named_keys = {"Input Dims", "Concrete Inputs"}};

KinetoEvents read(const std::string& path) {
  return read_kineto(path, options, [] {});
}

KinetoEvents read_text(const std::string& text) { return read(File(text).path()); }

std::string events(const std::string& list) { return "{\"traceEvents\": [" + list + "]}"; }

std::string message_of(const std::string& text) {
  try {
    read_text(text);
  } catch (const TraceError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("microseconds become nanoseconds exactly") {
  CHECK(nanoseconds("0") == 0);
  CHECK(nanoseconds("1706850122846038") == 1706850122846038000);
  CHECK(nanoseconds("4458676524648.797") == 4458676524648797);
  CHECK(nanoseconds("0.0005") == 1);
  CHECK(nanoseconds("0.00049999999999999999999") == 0);
  CHECK(nanoseconds("-0.0015") == -2);
  CHECK(nanoseconds("1.5e3") == 1500000);
  CHECK(nanoseconds("15E-1") == 1500);
  CHECK(nanoseconds("1e-400") == 0);
  CHECK(nanoseconds("9223372036854775.807") == std::numeric_limits<std::int64_t>::max());
  CHECK_FALSE(nanoseconds("9223372036854775.808"));
  CHECK_FALSE(nanoseconds("99999999999999999999"));
  CHECK_FALSE(nanoseconds("1e999999999999"));
  CHECK_FALSE(nanoseconds("1e100"));
  for (const char* text : {"", "-", ".", "e5", "1x", "1e", "1.2.3", "null", "nan", "0x10"}) {
    CAPTURE(text);
    CHECK_FALSE(nanoseconds(text));
  }
}

TEST_CASE("whole numbers are whole") {
  CHECK(whole_number("24") == 24);
  CHECK(whole_number("24.0") == 24);
  CHECK(whole_number("2.4e1") == 24);
  CHECK(whole_number("-1") == -1);
  CHECK(whole_number("1e3") == 1000);
  CHECK_FALSE(whole_number("24.5"));
  CHECK_FALSE(whole_number("0.1"));
  CHECK_FALSE(whole_number("default"));
}

TEST_CASE("events come with their columns, details and launches") {
  const auto found =
      read_text(R"({"schemaVersion": 1, "distributedInfo": {"rank": 3, "x": [1, "a"]},
    "traceEvents": [
      {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10.5, "dur": 2,
       "args": {"External id": 5, "device": 0, "stream": 7, "correlation": 9, "grid": [2, 3, 4],
                "block": [5, 6, 7], "shared memory": 8, "Collective name": "allreduce",
                "Input Dims": [[1]]}},
      {"ph": "M", "name": "process_name", "args": {"name": "python"}},
      {"ph": "X", "cat": "python_function", "name": "f", "ts": 1, "dur": 1},
      {"args": {"Input Dims": [[4, 2], []], "deep": {"correlation": 1}}, "cat": "cpu_op", "tid": "main",
       "name": "record_param_comms", "pid": 1, "ts": 3, "dur": 4, "ph": "X"},
      {"ph": "X", "name": "a", "ts": 1, "args": {"Input Dims": [1], "bytes": "512", "stream": 1.5}}],
    "traceName": "t"})");
  REQUIRE(found.name.size() == 3);
  CHECK(found.others == 2);
  CHECK(found.damaged == 0);
  CHECK(found.strings[found.name[1]] == "record_param_comms");
  CHECK(found.strings[found.thread[1]] == "main");
  CHECK(found.start_ns == std::vector<std::int64_t>{10500, 3000, 1000});
  CHECK(found.duration_ns == std::vector<std::int64_t>{2000, 4000, 0});
  CHECK(found.correlation == std::vector<std::int64_t>{9, -1, -1});
  CHECK(found.stream == std::vector<std::int64_t>{7, -1, -1});
  CHECK(found.bytes == std::vector<std::int64_t>{-1, -1, 512});
  REQUIRE(found.launches.size() == 1);
  CHECK(found.launches[0] == LaunchShape{2, 3, 4, 5, 6, 7, 8});
  REQUIRE(found.detailed == std::vector<std::uint32_t>{0, 1});
  CHECK(found.strings[found.detail_value[0]] == "allreduce");
  CHECK(found.strings[found.detail_value[1]] == "[[4,2],[]]");
  REQUIRE(found.header.size() == 3);
  CHECK(found.header[0].second == "1");
  CHECK(found.header[1].second == R"({"rank":3,"x":[1,"a"]})");
  CHECK(found.header[2].second == R"("t")");
}

TEST_CASE("a bare list of events is a trace") {
  CHECK(read_text(R"([{"ph": "X", "name": "a", "ts": 1, "dur": 2}])").name.size() == 1);
  CHECK(read_text("[]").name.empty());
}

TEST_CASE("events that cannot be are counted, not kept") {
  const auto found = read_text(events(R"({"ph": "X", "name": "a", "ts": 1, "dur": -1},
    {"ph": "X", "name": "a", "dur": 1}, {"ph": "X", "ts": 1, "dur": 1},
    {"ph": "X", "name": "a", "ts": "soon", "dur": 1}, {"ph": "X", "name": "a", "ts": NaN, "dur": 1},
    {"ph": "X", "name": "a", "ts": 1e300, "dur": 1}, {"ph": "X", "name": "a", "ts": null}, 5, [], "x")"));
  CHECK(found.name.empty());
  CHECK(found.damaged == 7);
}

TEST_CASE("gzip gives the same, several members too") {
  const std::string text = events(R"({"ph": "X", "name": "a", "ts": 1, "dur": 2})");
  const File plain(text);
  const auto expected = read(plain.path());
  const File packed(text, true);
  CHECK(read(packed.path()).start_ns == expected.start_ns);
  std::string twice;
  {
    const File first(text.substr(0, 20), true);
    std::ifstream file(first.path(), std::ios::binary);
    twice.assign(std::istreambuf_iterator<char>(file), {});
  }
  {
    const File second(text.substr(20), true);
    std::ifstream file(second.path(), std::ios::binary);
    twice.append(std::istreambuf_iterator<char>(file), {});
  }
  CHECK(read_text(twice).start_ns == expected.start_ns);
}

TEST_CASE("every cut of a trace is told") {
  const std::string text =
      events(R"({"ph": "X", "name": "\u00e4b", "ts": 1.5, "args": {"grid": [1, 2]}})");
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    CAPTURE(bytes);
    CHECK_FALSE(message_of(text.substr(0, bytes)).empty());
  }
  const File packed(text, true);
  for (auto bytes = packed.size(); bytes-- > 3;) {
    packed.cut(bytes);
    CAPTURE(bytes);
    CHECK_THROWS_AS(read(packed.path()), TraceError);
  }
}

TEST_CASE("what is no trace is named") {
  CHECK(has(message_of(""), "empty"));
  CHECK(has(message_of("{}"), "no traceEvents"));
  CHECK(has(message_of("5"), "expected an object"));
  CHECK(has(message_of(R"({"traceEvents": {"a": 1}})"), "no traceEvents"));
  CHECK(has(message_of(events("{\"ph\" \"X\"}")), "at byte"));
  CHECK(has(message_of(std::string(100'000, '[')), "deep"));
  CHECK(has(message_of(R"({"a": )" + std::string(100'000, '[')), "deep"));
  CHECK(has(message_of(events("") + "x"), "at byte"));
  CHECK_THROWS_AS(read("/no/such/file"), TraceError);
  CHECK_THROWS_AS(read("/tmp"), TraceError);
}

TEST_CASE("texts beyond the buffer stay whole") {
  std::string list;
  const std::string name(70'000, 'n');
  for (int i = 0; i < 40; ++i) {
    list += (i > 0 ? "," : "") + std::string(R"({"ph": "X", "name": ")") + name +
            std::to_string(i) + R"(", "ts": )" + std::to_string(i) + R"(, "dur": 1})";
  }
  int polls = 0;
  const File file(events(list));
  const auto found = read_kineto(file.path(), options, [&] { ++polls; });
  REQUIRE(found.name.size() == 40);
  CHECK(found.strings[found.name[39]] == name + "39");
  CHECK(found.text_bytes == file.size());
}

TEST_CASE("a text without an end takes no memory") {
  const std::string name(std::size_t{18} << 20, 'n');
  CHECK(has(message_of(R"([{"ph": "X", "name": ")" + name + R"("}])"), "more than 16 MiB"));
  CHECK(has(message_of(R"([{"ph": "X", "args": {"stack": ")" + name), "more than 16 MiB"));
  CHECK(has(message_of("[" + std::string(name.size(), ' ') + "]"), "more than 16 MiB"));
}

TEST_CASE("a zero byte is no end") {
  const std::string whole = events(R"({"ph": "X", "name": "a", "ts": 1, "dur": 2})");
  const std::string zero(1, '\0');
  CHECK(has(message_of(whole + zero + "garbage"), "zero byte"));
  CHECK(has(message_of(whole + zero), "zero byte"));
  CHECK_FALSE(message_of(whole.substr(0, 20) + zero + whole.substr(20)).empty());
  CHECK(message_of(whole + " \n").empty());
}
