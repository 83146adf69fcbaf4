// flux2-rpc-server processes on this machine, and what travels to and from them.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace flux2::test {

// A socket that listens on any free port of this machine.
class Listener {
  public:
    Listener();
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    int port() const { return port_; }
    // Waits for a client; its socket, or below 0 after stop().
    int accept() const;
    void stop() const;

  private:
    int socket_;
    int port_ = 0;
};

std::string rpc_server_path();  // flux2-rpc-server of this build
int free_port();
std::string address_of(int port);

// A flux2-rpc-server with one thread that ends with this object.
class RemoteServer {
  public:
    // More options of the program; without any it has no cache.
    explicit RemoteServer(const std::string& options = "--no-cache");
    RemoteServer(int port, const std::string& options);
    ~RemoteServer() { kill(); }
    RemoteServer(const RemoteServer&) = delete;
    RemoteServer& operator=(const RemoteServer&) = delete;

    std::string address() const { return address_of(port_); }
    int port() const { return port_; }
    const std::string& pid() const { return pid_; }
    void kill();

  private:
    int port_;
    std::string pid_;
};

// Stands between clients and a server, passes on what they send and counts it.
class CountingProxy {
  public:
    explicit CountingProxy(int server_port);
    ~CountingProxy();
    CountingProxy(const CountingProxy&) = delete;
    CountingProxy& operator=(const CountingProxy&) = delete;

    std::string address() const { return address_of(listener_.port()); }
    // Counted before they are passed on: whoever has an answer finds it counted.
    uint64_t to_server() const { return to_server_; }
    uint64_t from_server() const { return from_server_; }

  private:
    void serve();
    void pass_on(int from, int to, std::atomic<uint64_t>& count) const;

    int server_port_;
    Listener listener_;
    std::atomic<uint64_t> to_server_ = 0;
    std::atomic<uint64_t> from_server_ = 0;
    std::mutex mutex_;
    std::vector<int> sockets_;
    std::vector<std::thread> threads_;  // of connections
    std::thread accepting_;
};

}  // namespace flux2::test
