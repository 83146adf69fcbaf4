// Who may use the server: keys, and protection against web pages of other origins.
#pragma once

#include "http/answer.hpp"
#include "http/server_options.hpp"

#include <httplib.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flux2::server {

class Access {
  public:
    explicit Access(const ServerOptions& options);

    // Why a request is refused: a Host under which nobody should address this server, as after DNS
    // rebinding, an Origin that is not allowed, or no valid key where one is needed: not for what
    // is public.
    std::optional<HttpError> refusal(const httplib::Request& request, bool is_public) const;

    // Sets the CORS headers of an answer to an allowed page of another origin.
    void allow_origin(const httplib::Request& request, httplib::Response& response) const;

  private:
    bool host_is_allowed(const httplib::Request& request) const;
    bool origin_is_allowed(const httplib::Request& request) const;
    bool has_key(const httplib::Request& request) const;

    std::vector<std::string> keys_, origins_, hosts_;
    bool is_local_socket_;
};

// Takes the same time wherever they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace flux2::server
