#include "cmd/hvdrun/config_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "base/descriptors.h"
#include "base/text.h"

namespace hvd::cli {
namespace {

std::string place(std::string_view source, const YAML::Mark& mark) {
  return mark.is_null() ? std::string(source) : cat(source, ":", mark.line + 1);
}

Status error_at(std::string_view source, const YAML::Node& node, std::string_view message) {
  return {Code::invalid_argument, cat(place(source, node.Mark()), ": ", message)};
}

// Where the documents of a file begin; their content is passed over.
class DocumentStarts final : public YAML::EventHandler {
 public:
  const std::vector<YAML::Mark>& marks() const { return marks_; }

  void OnDocumentStart(const YAML::Mark& mark) override { marks_.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/,
                       YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}

 private:
  std::vector<YAML::Mark> marks_;
};

// Where a second document begins. Not by YAML::LoadAll(): at some broken texts yaml-cpp 0.7 finds
// one document after another without ever coming further.
std::optional<YAML::Mark> second_document(const std::string& text) {
  std::istringstream in(text);
  YAML::Parser parser(in);
  DocumentStarts starts;
  if (!parser.HandleNextDocument(starts) || !parser.HandleNextDocument(starts)) return {};
  return starts.marks().back();
}

std::vector<std::string> known_sections() {
  std::vector<std::string> sections{"controller"};
  for (const Knob* const setting : all_settings()) {
    auto section = split(setting->config_key, '.').front();
    const bool is_known = std::find(sections.begin(), sections.end(), section) != sections.end();
    if (!is_known) sections.push_back(std::move(section));
  }
  return sections;
}

std::vector<std::string> known_keys(std::string_view section) {
  std::vector<std::string> keys;
  for (const Knob* const setting : all_settings()) {
    const auto parts = split(setting->config_key, '.');
    if (parts[0] == section) keys.push_back(parts[1]);
  }
  return keys;
}

// Suggests a similar name, else a key of the same name in another section, else lists all keys.
std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  if (const auto near = nearest(word, known)) return cat("; did you mean ", *near, "?");
  for (const Knob* const setting : all_settings()) {
    if (split(setting->config_key, '.')[1] == word) {
      return cat("; did you mean ", setting->config_key, "?");
    }
  }
  return cat("; known here: ", join(known, ", "));
}

Result<std::string> scalar_text(std::string_view source, const YAML::Node& key,
                                const YAML::Node& node, const Knob& setting) {
  if (node.IsScalar()) return node.Scalar();
  const bool integers = setting.type == KnobType::integer_list;
  if (node.IsSequence() && (integers || is_list(setting) || is_pair(setting))) {
    std::vector<std::string> items;
    for (const auto& item : node) {
      if (!item.IsScalar() || item.Scalar().empty()) {
        return error_at(source, item,
                        cat(setting.config_key, ": every item must be ",
                            integers ? "an integer" : "a text that is not empty"));
      }
      items.push_back(item.Scalar());
    }
    return integers || is_pair(setting) ? join(items, ",") : list_text(items);
  }
  const char* const got = node.IsNull() ? "nothing" : node.IsMap() ? "a map" : "a list";
  // YAML gives the next line as the position of an empty value.
  return error_at(source, node.IsNull() ? key : node,
                  cat(setting.config_key, ": must be one value, but is ", got));
}

Status take_section(std::string_view source, const std::string& section, const YAML::Node& node,
                    Values& values) {
  if (!node.IsMap()) {
    return error_at(source, node,
                    cat(section, ": must be a map of settings, such as '",
                        known_keys(section).front(), ": ...' on its own line"));
  }
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) return error_at(source, entry.first, "a key must be a word");
    const std::string key = entry.first.Scalar();
    const Knob* const setting = find_setting_by_config_key(cat(section, ".", key));
    if (setting == nullptr) {
      return error_at(source, entry.first,
                      cat("unknown key ", section, ".", key, suggestion(key, known_keys(section))));
    }
    auto text = scalar_text(source, entry.first, entry.second, *setting);
    if (!text.ok()) return text.status();
    const std::string shown = cat(place(source, entry.second.Mark()), ": ", setting->config_key);
    auto checked = setting_value(*setting, *text, shown);
    if (!checked.ok()) return checked.status();
    if (!values.emplace(setting->flag, Value{std::move(*checked), shown}).second) {
      return error_at(source, entry.first, cat(setting->config_key, " is given twice"));
    }
  }
  return {};
}

Status take_controller(std::string_view source, const YAML::Node& node) {
  if (node.IsScalar() && node.Scalar() == "gloo") return {};
  if (node.IsScalar() && node.Scalar() == "mpi") {
    return error_at(source, node, "controller: mpi: launching through MPI is not in this version");
  }
  return error_at(source, node, "controller: must be gloo");
}

Result<Values> take_root(std::string_view source, const YAML::Node& root) {
  Values values;
  if (root.IsNull()) return values;
  if (!root.IsMap()) {
    return error_at(source, root,
                    cat("must be sections of settings: ", join(known_sections(), ", ")));
  }
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) return error_at(source, entry.first, "a section must be a word");
    const std::string section = entry.first.Scalar();
    if (section == "controller") {
      HVD_RETURN_IF_ERROR(take_controller(source, entry.second));
      continue;
    }
    if (known_keys(section).empty()) {
      return error_at(source, entry.first,
                      cat("unknown section ", section, suggestion(section, known_sections())));
    }
    HVD_RETURN_IF_ERROR(take_section(source, section, entry.second, values));
  }
  HVD_RETURN_IF_ERROR(check_one_host_source(values));
  return values;
}

}  // namespace

Result<Values> parse_config(std::string_view text, std::string_view source) {
  try {
    const std::string whole(text);
    if (const auto second = second_document(whole)) {
      return Status(Code::invalid_argument,
                    cat(place(source, *second),
                        ": a second YAML document; all settings must be in the first"));
    }
    return take_root(source, YAML::Load(whole));
  } catch (const YAML::Exception& error) {
    return Status(Code::invalid_argument,
                  cat(place(source, error.mark), ": not YAML: ", error.msg));
  }
}

Result<Values> read_config_file(const std::string& path) {
  auto text = read_named_file("config file", path, std::size_t{1} << 20);
  if (!text.ok()) return text.status();
  return parse_config(*text, path);
}

Result<std::string> read_named_file(std::string_view what, const std::string& path,
                                    std::size_t limit) {
  const std::string name = path == "-" ? cat(what, " on standard input") : cat(what, " ", path);
  UniqueFd opened;
  int fd = STDIN_FILENO;
  if (path != "-") {
    opened.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened) return Status::from_errno(name, errno);
    fd = opened.get();
  }
  struct stat kind {};
  if (::fstat(fd, &kind) == 0 && S_ISDIR(kind.st_mode)) return Status::from_errno(name, EISDIR);
  std::string text;
  std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(name, errno);
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > limit) {
      return Status(Code::resource_exhausted,
                    cat(name, ": larger than ", with_thousands(limit), " bytes"));
    }
  }
}

}  // namespace hvd::cli
