// The files of driver/status/page, which CMake puts into hvdrun. Pure.
#pragma once

#include <string_view>

namespace hvd::driver {

struct PageFile {
  std::string_view path;  // "/page.css"; that of the document is "/"
  std::string_view content_type;
  std::string_view content;
};

// Null: there is no such file.
const PageFile* find_page_file(std::string_view path);

}  // namespace hvd::driver
