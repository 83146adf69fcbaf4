// Whether the client of a request that is being worked on is still there.
#pragma once

#include <httplib.h>

namespace flux2::server {

// Also notices the end of a TLS session. Called from the thread that serves the request; does not
// block.
bool client_is_gone(const httplib::Request& request);

}  // namespace flux2::server
