# What is changed in ggml's RPC before it is built. The changed files are copies in the build tree; the source stays as it is.
# Each change names text that must be there once, so a ggml in which it reads differently stops the configuration.
#
# 1. The client ended the program when a server was lost, could not be reached or had another version. Now the connection is
#    marked as failed, further requests on it do nothing and give zeros, and `flux2_rpc_failure` (a proc address of the
#    registry) tells why. A base address or an allocation size of zero is never used or remembered.
# 2. Writing to a lost connection raised SIGPIPE.
# 3. A greeting that is not answered was waited for without end: a server serves one client at a time.
# 4. Tensors carry their names in a field of GGML_MAX_NAME bytes, and both ends must agree on it: the server's greeting tells
#    its length in a byte that was unused. Versions must be equal, since operations are sent as numbers.
# 5. A connection is closed after its thread has ended, which uses it.
# 6. The server forgot the graphs of all its devices when it freed any memory, and closed the connection when the client asked
#    to compute one of them again. Now it forgets those that use the memory.
function(flux2_change file old new)
    file(READ ${file} text)
    string(FIND "${text}" "${old}" first)
    string(FIND "${text}" "${old}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
        message(FATAL_ERROR "ggml/rpc.cmake does not fit this ggml: ${file} does not have this text exactly once:\n${old}\n"
            "Use the pinned ggml, or build without -DFLUX2_RPC=ON.")
    endif()
    string(REPLACE "${old}" "${new}" text "${text}")
    file(WRITE ${file} "${text}")
endfunction()

function(flux2_mend_rpc)
    set(source ${FLUX2_GGML_DIR}/src/ggml-rpc)
    set(mended ${CMAKE_CURRENT_BINARY_DIR}/mended-rpc)
    set(client ${mended}/fresh/ggml-rpc.cpp)
    set(transport ${mended}/fresh/transport.cpp)
    file(MAKE_DIRECTORY ${mended}/fresh)
    file(COPY_FILE ${source}/ggml-rpc.cpp ${client})
    file(COPY_FILE ${source}/transport.cpp ${transport})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source}/ggml-rpc.cpp ${source}/transport.cpp)

    # 1. Why servers cannot be used, by endpoint.
    flux2_change(${client}
[=[// macro for nicer error messages on server crash
#define RPC_STATUS_ASSERT(x) if (!(x)) GGML_ABORT("Remote RPC server crashed or returned malformed response")
]=]
[=[// Why servers cannot be used, by endpoint.
static std::mutex rpc_failures_mutex;
static std::unordered_map<std::string, std::string> rpc_failures;

static void set_rpc_failure(const std::string & endpoint, const std::string & reason) {
    std::lock_guard<std::mutex> lock(rpc_failures_mutex);
    rpc_failures[endpoint] = reason;
}

// Copies the reason and returns true when the server at the endpoint cannot be used.
static bool flux2_rpc_failure(const char * endpoint, char * reason, size_t size) {
    std::lock_guard<std::mutex> lock(rpc_failures_mutex);
    auto it = rpc_failures.find(endpoint);
    if (it == rpc_failures.end() || it->second.empty()) {
        return false;
    }
    snprintf(reason, size, "%s", it->second.c_str());
    return true;
}
]=])
    flux2_change(${client}
[=[    return NULL;

    GGML_UNUSED(reg);
}

static const struct ggml_backend_reg_i ggml_backend_rpc_reg_i]=]
[=[    if (std::strcmp(name, "flux2_rpc_failure") == 0) {
        return (void *)flux2_rpc_failure;
    }
    return NULL;

    GGML_UNUSED(reg);
}

static const struct ggml_backend_reg_i ggml_backend_rpc_reg_i]=])
    flux2_change(${client}
[=[    rpc_msg_queue    queue;
    socket_ptr       sock;]=]
[=[    void fail(const std::string & reason) {
        failed = true;
        set_rpc_failure(endpoint, reason);
    }

    rpc_msg_queue    queue;
    std::string      endpoint;
    std::atomic_bool failed{false};
    socket_ptr       sock;]=])
    flux2_change(${client}
[=[void rpc_dispatcher::start(const std::string & endpoint) {
    std::string host;
    int port;
    if (!parse_endpoint(endpoint, host, port)) {
        GGML_ABORT("Failed to parse endpoint: %s\n", endpoint.c_str());
    }
    if (!rpc_transport_init()) {
        GGML_ABORT("RPC transport initialization failed\n");
    }

    sock = socket_t::connect(host.c_str(), port);
    if (sock == nullptr) {
        GGML_ABORT("Failed to connect to %s\n", endpoint.c_str());
    }
    if (!negotiate_hello(sock)) {
        GGML_ABORT("RPC handshake failed for %s\n", endpoint.c_str());
    }
]=]
[=[void rpc_dispatcher::start(const std::string & server) {
    endpoint = server;
    std::string host;
    int port = 0;
    std::string problem;
    if (parse_endpoint(endpoint, host, port) && rpc_transport_init()) {
        sock = socket_t::connect(host.c_str(), port);
    }
    if (sock == nullptr) {
        fail("cannot be reached");
    } else if (!negotiate_hello(sock, problem)) {
        sock = nullptr;
        fail(problem);
    } else {
        set_rpc_failure(endpoint, "");
    }
]=])
    flux2_change(${client}
[=[            if (msg_ptr->output) {
                bool status = send_rpc_cmd(sock, msg_ptr->cmd, msg_ptr->input.get(), msg_ptr->input_size, msg_ptr->output, msg_ptr->output_size);
                RPC_STATUS_ASSERT(status);
            } else {
                bool status = send_rpc_cmd(sock, msg_ptr->cmd, msg_ptr->input.get(), msg_ptr->input_size);
                RPC_STATUS_ASSERT(status);
            }
]=]
[=[            if (!failed) {
                bool status = msg_ptr->output
                    ? send_rpc_cmd(sock, msg_ptr->cmd, msg_ptr->input.get(), msg_ptr->input_size, msg_ptr->output, msg_ptr->output_size)
                    : send_rpc_cmd(sock, msg_ptr->cmd, msg_ptr->input.get(), msg_ptr->input_size);
                if (!status) {
                    fail("was lost");
                }
            }
            if (failed && msg_ptr->output) {
                memset(msg_ptr->output, 0, msg_ptr->output_size);
            }
]=])
    flux2_change(${client}
[=[    ctx->base_ptr = reinterpret_cast<void *>(response.base_ptr);]=]
[=[    // The address is not used when the server is lost, but ggml expects one.
    ctx->base_ptr = reinterpret_cast<void *>(response.base_ptr != 0 ? response.base_ptr : (1 << 20));]=])
    flux2_change(${client}
[=[        {
            std::lock_guard<std::mutex> lock(cache_mutex);
            cache[cache_hash] = response.alloc_size;
        }]=]
[=[        if (response.alloc_size == 0) {
            return ggml_nbytes(tensor);
        }
        {
            std::lock_guard<std::mutex> lock(cache_mutex);
            cache[cache_hash] = response.alloc_size;
        }]=])
    flux2_change(${client}
[=[    size_t alignment = get_alignment(dispatcher, device);
    size_t max_size = get_max_size(dispatcher, device);
]=]
[=[    size_t alignment = get_alignment(dispatcher, device);
    size_t max_size = get_max_size(dispatcher, device);
    const bool known = alignment > 0;
    alignment = known ? alignment : 32;
]=])
    flux2_change(${client}
[=[    buft_map[buft_name] = buft;]=]
[=[    if (known) {
        buft_map[buft_name] = buft;
    }]=])

    # 4. Versions and lengths of names.
    flux2_change(${client}
[=[static bool negotiate_hello(const std::shared_ptr<socket_t> & sock) {]=]
[=[static bool negotiate_hello(const std::shared_ptr<socket_t> & sock, std::string & problem) {]=])
    flux2_change(${client}
[=[    RPC_STATUS_ASSERT(status);

    if (response.major != RPC_PROTO_MAJOR_VERSION || response.minor > RPC_PROTO_MINOR_VERSION) {
        GGML_LOG_ERROR("RPC server version mismatch: %d.%d.%d\n",
                       response.major, response.minor, response.patch);
        return false;
    }
]=]
[=[    if (!status) {
        problem = "does not answer as a flux2-rpc-server of this version does, or serves another client";
        return false;
    }
    if (response.major != RPC_PROTO_MAJOR_VERSION || response.minor != RPC_PROTO_MINOR_VERSION || response.patch != RPC_PROTO_PATCH_VERSION) {
        problem = "speaks version " + std::to_string(response.major) + "." + std::to_string(response.minor) + "." + std::to_string(response.patch) +
            " of ggml's protocol, and this program " + std::to_string(RPC_PROTO_MAJOR_VERSION) + "." + std::to_string(RPC_PROTO_MINOR_VERSION) + "." +
            std::to_string(RPC_PROTO_PATCH_VERSION);
        return false;
    }
    if (response.padding != GGML_MAX_NAME) {
        problem = response.padding == 0 ? std::string("is no flux2-rpc-server: it does not tell how long names of tensors are")
            : "has names of tensors of " + std::to_string(response.padding) + " bytes, and this program of " + std::to_string(GGML_MAX_NAME);
        return false;
    }
]=])
    flux2_change(${client}
[=[    response.patch = RPC_PROTO_PATCH_VERSION;
]=]
[=[    response.patch = RPC_PROTO_PATCH_VERSION;
    static_assert(GGML_MAX_NAME < 256, "told in a byte");
    response.padding = GGML_MAX_NAME;
]=])

    # 5. The end of a connection.
    flux2_change(${client}
[=[    queue.interrupt();
    sock = nullptr;
    if (thread.joinable()) {
        thread.join();
    }
]=]
[=[    queue.interrupt();
    if (thread.joinable()) {
        thread.join();
    }
    sock = nullptr;
]=])

    # 6. Graphs that use memory that is freed.
    flux2_change(${client}
[=[    // Discard all cached graphs to avoid use-after-free in graph_recompute,
    // since their nodes may hold pointers to the buffer being freed.
    for (auto & sg : stored_graphs) {
        sg.graph = nullptr;
    }
]=]
[=[    // They could be asked for again, and read memory that is gone.
    const auto is_freed = [buffer](const ggml_tensor * tensor) {
        return tensor != nullptr && (tensor->buffer == buffer || (tensor->view_src != nullptr && tensor->view_src->buffer == buffer));
    };
    for (auto & sg : stored_graphs) {
        bool uses = false;
        for (int i = 0; sg.graph != nullptr && !uses && i < sg.graph->n_nodes; i++) {
            const ggml_tensor * node = sg.graph->nodes[i];
            uses = is_freed(node) || (node != nullptr && std::any_of(node->src, node->src + GGML_MAX_SRC, is_freed));
        }
        if (uses) {
            sg.graph = nullptr;
        }
    }
]=])

    # 2. Signals, and messages that ours replace.
    flux2_change(${transport}
[=[        ssize_t n = send(fd, (const char *)data + bytes_sent, size_to_send, 0);
        if (n < 0) {
            GGML_LOG_ERROR(]=]
[=[#ifdef MSG_NOSIGNAL
        const int flags = MSG_NOSIGNAL;
#else
        const int flags = 0;
#endif
        ssize_t n = send(fd, (const char *)data + bytes_sent, size_to_send, flags);
        if (n < 0) {
            LOG_DBG(]=])
    flux2_change(${transport} "GGML_LOG_ERROR(\"recv failed" "LOG_DBG(\"recv failed")
    flux2_change(${transport} "GGML_LOG_ERROR(\"Cannot resolve host '%s'\\n\", host)" "LOG_DBG(\"Cannot resolve host '%s'\\n\", host)")
    flux2_change(${transport}
[=[static bool set_reuse_addr(sockfd_t sockfd) {]=]
[=[// Of reading; 0 seconds: none.
static void set_time_limit(sockfd_t sockfd, int seconds) {
#ifdef _WIN32
    DWORD limit = seconds * 1000;
#else
    struct timeval limit = {};
    limit.tv_sec = seconds;
#endif
    setsockopt(sockfd, SOL_SOCKET, SO_RCVTIMEO, (const char *)&limit, sizeof(limit));
    // Finds a machine that is gone without a word.
    int on = 1;
    setsockopt(sockfd, SOL_SOCKET, SO_KEEPALIVE, (const char *)&on, sizeof(on));
#ifdef TCP_KEEPIDLE
    int idle = 15, interval = 5, count = 3;
    setsockopt(sockfd, IPPROTO_TCP, TCP_KEEPIDLE, (const char *)&idle, sizeof(idle));
    setsockopt(sockfd, IPPROTO_TCP, TCP_KEEPINTVL, (const char *)&interval, sizeof(interval));
    setsockopt(sockfd, IPPROTO_TCP, TCP_KEEPCNT, (const char *)&count, sizeof(count));
#endif
#ifdef SO_NOSIGPIPE
    setsockopt(sockfd, SOL_SOCKET, SO_NOSIGPIPE, (const char *)&on, sizeof(on));
#endif
}

static bool set_reuse_addr(sockfd_t sockfd) {]=])

    # 3. A time limit until the greeting is over.
    flux2_change(${transport}
[=[    return pimpl->update_caps(remote_caps);]=]
[=[    set_time_limit(pimpl->fd, 0);
    return pimpl->update_caps(remote_caps);]=])
    flux2_change(${transport}
[=[void socket_t::update_caps(const uint8_t * remote_caps) {]=]
[=[static void set_time_limit(sockfd_t sockfd, int seconds);

void socket_t::update_caps(const uint8_t * remote_caps) {]=])
    flux2_change(${transport}
[=[    if (::connect(sockfd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        return nullptr;
    }
]=]
[=[    if (::connect(sockfd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        return nullptr;
    }
    set_time_limit(sockfd, 10);
]=])
    flux2_change(${transport}
[=[    auto client_socket_fd = ::accept(pimpl->fd, NULL, NULL);
    if (!is_valid_fd(client_socket_fd)) {
        return nullptr;
    }
]=]
[=[    auto client_socket_fd = ::accept(pimpl->fd, NULL, NULL);
    if (!is_valid_fd(client_socket_fd)) {
        return nullptr;
    }
    set_time_limit(client_socket_fd, 10);
]=])

    # Compiled again only where the text has changed.
    get_target_property(sources ggml-rpc SOURCES)
    foreach(file ggml-rpc.cpp transport.cpp)
        file(COPY_FILE ${mended}/fresh/${file} ${mended}/${file} ONLY_IF_DIFFERENT)
        list(TRANSFORM sources REPLACE "^(.*/)?${file}$" "${mended}/${file}")
    endforeach()
    set_target_properties(ggml-rpc PROPERTIES SOURCES "${sources}")
    target_include_directories(ggml-rpc PRIVATE ${source} ${source}/..)
endfunction()
