#include "http/client_connection.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

namespace flux2::server {
namespace {

// On the socket there are still bytes after the client's goodbye, so that it looks alive.
bool tls_is_closed(SSL* session) {
    const int socket = SSL_get_fd(session);
    BIO_socket_nbio(socket, 1);
    char next = 0;
    const int n = SSL_peek(session, &next, 1);
    const int problem = SSL_get_error(session, n);
    BIO_socket_nbio(socket, 0);
    ERR_clear_error();
    return n <= 0 && problem != SSL_ERROR_WANT_READ && problem != SSL_ERROR_WANT_WRITE;
}

}  // namespace

bool client_is_gone(const httplib::Request& request) {
    if (request.is_connection_closed()) {
        return true;
    }
    // The library keeps the session of a request as a constant, but looking for a goodbye reads it.
    return request.ssl != nullptr &&
           tls_is_closed(static_cast<SSL*>(const_cast<void*>(request.ssl)));
}

}  // namespace flux2::server
