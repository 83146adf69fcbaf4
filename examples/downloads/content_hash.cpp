#include "downloads/content_hash.hpp"

#include "base/check.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

namespace flux2::hub {

namespace fs = std::filesystem;

HashKind hash_kind(const std::string& etag) {
    const bool is_hexadecimal = etag.find_first_not_of("0123456789abcdef") == std::string::npos;
    return is_hexadecimal && etag.size() == 64   ? HashKind::sha256
           : is_hexadecimal && etag.size() == 40 ? HashKind::git_blob
                                                 : HashKind::none;
}

GrowingHash::GrowingHash(fs::path file, HashKind kind, uint64_t size)
    : file_(std::move(file)), kind_(kind), final_size_(size), thread_([this] { run(); }) {}

GrowingHash::~GrowingHash() {
    {
        const std::lock_guard lock(mutex_);
        is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void GrowingHash::advance(uint64_t size, std::shared_ptr<const std::vector<std::byte>> bytes) {
    constexpr uint64_t kMostWaiting = 8 << 20;
    std::unique_lock lock(mutex_);
    // To wait takes less time than to read them from the file later.
    changed_.wait(lock, [&] {
        return !is_near_end_ || has_result_ || waiting_.empty() ||
               waiting_bytes_ + bytes->size() <= kMostWaiting;
    });
    if (waiting_bytes_ + bytes->size() <= kMostWaiting) {
        waiting_bytes_ += bytes->size();
        waiting_.emplace(size - bytes->size(), std::move(bytes));
    }
    size_ = size;
    changed_.notify_all();
}

void GrowingHash::start_with(uint64_t size) {
    const std::lock_guard lock(mutex_);
    size_ = size;
    changed_.notify_all();
}

std::string GrowingHash::finish(uint64_t size, const std::atomic<bool>* cancel) {
    std::unique_lock lock(mutex_);
    size_ = size;
    is_whole_ = true;
    changed_.notify_all();
    while (!changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return has_result_; })) {
        check(cancel == nullptr || !*cancel, ErrorKind::cancelled, "cancelled");
    }
    check(problem_.empty(), ErrorKind::bad_file, problem_);
    return result_;
}

GrowingHash::Next GrowingHash::wait_beyond(uint64_t done) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_over_ || is_whole_ || size_ > done; });
    if (is_over_ || size_ == done) {
        return {nullptr, done, true};
    }
    is_near_end_ = !waiting_.empty() && waiting_.begin()->first <= done;
    if (!is_near_end_) {
        return {nullptr, waiting_.empty() ? size_ : waiting_.begin()->first, false};
    }
    auto bytes = std::move(waiting_.extract(waiting_.begin()).mapped());
    waiting_bytes_ -= bytes->size();
    changed_.notify_all();
    return {std::move(bytes), 0, false};
}

void GrowingHash::run() {
    std::string result;
    std::string problem;
    try {
        result = hash_all();
    } catch (const std::exception& error) {
        problem = error.what();
    }
    const std::lock_guard lock(mutex_);
    result_ = result;
    problem_ = problem;
    has_result_ = true;
    changed_.notify_all();
}

std::string GrowingHash::hash_all() {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                          EVP_MD_CTX_free);
    const EVP_MD* kind = kind_ == HashKind::sha256 ? EVP_sha256() : EVP_sha1();
    bool good = context && EVP_DigestInit_ex(context.get(), kind, nullptr) == 1;
    if (kind_ == HashKind::git_blob) {
        const std::string start = concat("blob ", final_size_) + '\0';
        good = good && EVP_DigestUpdate(context.get(), start.data(), start.size()) == 1;
    }
    std::vector<char> buffer(1 << 20);
    std::ifstream in;
    uint64_t done = 0;
    for (Next next = wait_beyond(done); good && !next.is_last; next = wait_beyond(done)) {
        if (next.bytes) {
            good = EVP_DigestUpdate(context.get(), next.bytes->data(), next.bytes->size()) == 1;
            done += next.bytes->size();
        }
        while (good && done < next.until && !is_over_) {
            if (!in.is_open()) {
                in.open(file_, std::ios::binary);
            }
            const uint64_t n = std::min<uint64_t>(buffer.size(), next.until - done);
            in.seekg(static_cast<std::streamoff>(done));
            in.read(buffer.data(), static_cast<std::streamsize>(n));
            check(in.good(), ErrorKind::bad_file, file_.string(), ": cannot be read");
            good = EVP_DigestUpdate(context.get(), buffer.data(), n) == 1;
            done += n;
        }
    }
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned n_bytes = 0;
    good = good && EVP_DigestFinal_ex(context.get(), digest.data(), &n_bytes) == 1;
    check(good, ErrorKind::internal, "OpenSSL could not compute a hash");
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < n_bytes; ++i) {
        text += kDigits[digest[i] >> 4];
        text += kDigits[digest[i] & 15];
    }
    return text;
}

}  // namespace flux2::hub
