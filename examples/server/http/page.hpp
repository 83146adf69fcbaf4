// The page for people: a web application whose files are part of the program. GET / answers it to
// browsers; its other files are under /web/VERSION/.
#pragma once

#include "http/page_files.hpp"

#include <httplib.h>

namespace flux2::server {

// The file that a request asks for. Null for every other request: also for GET / of a program,
// which does not accept HTML.
const PageFile* find_page_file(const httplib::Request& request);

// Answers a file with the headers that let browsers keep it and nothing else run in the page; 304
// when the browser has it already.
void answer_page_file(const PageFile& file, const httplib::Request& request,
                      httplib::Response& response);

}  // namespace flux2::server
