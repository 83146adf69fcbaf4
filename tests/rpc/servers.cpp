#include "rpc/servers.hpp"

#include "support/program.hpp"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace flux2::test {
namespace {

sockaddr_in loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
}

void send_at_once(int socket) {
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

Listener::Listener() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    REQUIRE(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(socket_, 1) == 0);
    REQUIRE(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
}

Listener::~Listener() {
    ::close(socket_);
}

int Listener::accept() const {
    return ::accept(socket_, nullptr, nullptr);
}

void Listener::stop() const {
    ::shutdown(socket_, SHUT_RDWR);
}

std::string rpc_server_path() {
    return FLUX2_RPC_SERVER_PROGRAM;
}

int free_port() {
    return Listener().port();
}

std::string address_of(int port) {
    return "127.0.0.1:" + std::to_string(port);
}

RemoteServer::RemoteServer(const std::string& options) : RemoteServer(free_port(), options) {}

RemoteServer::RemoteServer(int port, const std::string& options) : port_(port) {
    const auto started =
        run_program("sh -c '" + rpc_server_path() + " -t 1 --port " + std::to_string(port_) + " " +
                    options + " > /dev/null 2>&1 & echo $!'");
    pid_ = started.out.substr(0, started.out.find('\n'));
    REQUIRE(!pid_.empty());
    for (int i = 0; i < 100; ++i) {
        if (run_program(flux2_path() + " devices --rpc " + address()).exit_code == 0) {
            return;
        }
        ::usleep(50'000);
    }
    FAIL("no server on " << address());
}

void RemoteServer::kill() {
    if (!pid_.empty()) {
        run_program("kill -9 " + pid_);
        pid_.clear();
    }
}

CountingProxy::CountingProxy(int server_port)
    : server_port_(server_port), accepting_([this] { serve(); }) {}

CountingProxy::~CountingProxy() {
    listener_.stop();
    accepting_.join();
    {
        const std::lock_guard lock(mutex_);
        for (const int socket : sockets_) {
            ::shutdown(socket, SHUT_RDWR);
        }
    }
    for (std::thread& thread : threads_) {
        thread.join();
    }
    for (const int socket : sockets_) {
        ::close(socket);
    }
}

void CountingProxy::serve() {
    for (int client = listener_.accept(); client >= 0; client = listener_.accept()) {
        const int server = ::socket(AF_INET, SOCK_STREAM, 0);
        const sockaddr_in address = loopback(server_port_);
        const bool connected =
            ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
        send_at_once(client);
        send_at_once(server);
        const std::lock_guard lock(mutex_);
        sockets_.push_back(client);
        sockets_.push_back(server);
        if (!connected) {
            ::shutdown(client, SHUT_RDWR);
            continue;
        }
        threads_.emplace_back([=, this] { pass_on(client, server, to_server_); });
        threads_.emplace_back([=, this] { pass_on(server, client, from_server_); });
    }
}

void CountingProxy::pass_on(int from, int to, std::atomic<uint64_t>& count) const {
    std::array<char, 65536> bytes;
    for (ssize_t n = ::recv(from, bytes.data(), bytes.size(), 0); n > 0;
         n = ::recv(from, bytes.data(), bytes.size(), 0)) {
        count += static_cast<uint64_t>(n);
        for (ssize_t sent = 0; sent < n;) {
            const ssize_t more =
                ::send(to, bytes.data() + sent, static_cast<size_t>(n - sent), MSG_NOSIGNAL);
            if (more <= 0) {
                ::shutdown(from, SHUT_RDWR);
                return;
            }
            sent += more;
        }
    }
    ::shutdown(to, SHUT_RDWR);
}

}  // namespace flux2::test
