#include "downloads/file_download.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/growing_file.hpp"
#include "base/letter_case.hpp"
#include "base/log.hpp"
#include "base/parallel.hpp"
#include "downloads/content_hash.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace flux2::hub {
namespace {

namespace fs = std::filesystem;
using Trouble = HttpAnswer::Trouble;
using Bytes = std::vector<std::byte>;

constexpr int kMaxHops = 10;

// Bytes from `begin` on, up to `end` where that is known.
struct Range {
    uint64_t begin = 0;
    std::optional<uint64_t> end;
};

enum class End { complete, failed, no_ranges, web_page };

struct Outcome {
    End end = End::failed;
    HttpAnswer answer;
};

bool is_hop(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Whether a 206 holds what was asked for: "bytes 100-199/200".
bool holds_range(const HttpAnswer& answer, const Range& range, std::optional<uint64_t> size) {
    const std::string text = answer.header("content-range");
    const size_t slash = text.find('/');
    const std::string begin = concat("bytes ", range.begin, "-");
    const std::string total = slash == std::string::npos ? "*" : text.substr(slash + 1);
    return text.starts_with(begin) && (total == "*" || !size || total == std::to_string(*size));
}

bool is_web_page(const HttpAnswer& answer, const std::string& path) {
    const std::string name = to_lower(path);
    return to_lower(answer.header("content-type")).starts_with("text/html") &&
           !name.ends_with(".html") && !name.ends_with(".htm");
}

// Buffers are used again: the system clears every page of fresh memory first.
class BufferPool {
  public:
    // Empty, with room for n bytes.
    Bytes take(size_t n) {
        Bytes bytes;
        {
            const std::lock_guard lock(mutex_);
            if (!free_.empty()) {
                bytes = std::move(free_.back());
                free_.pop_back();
            }
        }
        bytes.clear();
        bytes.reserve(n);
        return bytes;
    }
    // Returned to the pool, which must exist then, with the last copy.
    std::shared_ptr<const Bytes> share(Bytes bytes) {
        return {new Bytes(std::move(bytes)), [this](Bytes* last) {
                    {
                        const std::lock_guard lock(mutex_);
                        free_.push_back(std::move(*last));
                    }
                    delete last;
                }};
    }

  private:
    std::mutex mutex_;
    std::vector<Bytes> free_;
};

class Download {
  public:
    Download(HubClient& client, RemoteFile file, const fs::path& partial,
             const ProgressSink& progress)
        : client_(client), remote_(std::move(file)), file_(partial), progress_(progress) {
        begun_ = file_.size();
        if (remote_.size && begun_ > *remote_.size) {
            restart();
        }
        start_hash();
    }

    void run() {
        if (remote_.size) {
            check_free_space(file_.path(), *remote_.size - file_.size());
        }
        tell();
        fetch_all();
        if (!is_as_promised()) {
            const bool was_continued = begun_ > 0;
            restart();
            check(was_continued, ErrorKind::bad_file, to_string(remote_.name),
                  ": its bytes as they arrived do not have the hash ", remote_.etag,
                  " that the Hub promises, and were deleted; run it again, and if that does not "
                  "help, look for what changes files between you and ",
                  remote_.address.host);
            log(LogLevel::warning, concat(to_string(remote_.name),
                                          ": the part that was here is not of this file; it is "
                                          "fetched from the beginning"));
            start_hash();
            fetch_all();
            check(is_as_promised(), ErrorKind::bad_file, to_string(remote_.name),
                  ": its bytes do not have the hash ", remote_.etag,
                  " that the Hub promises; run it again");
        }
        file_.sync_and_close();
    }

  private:
    const HubSettings& settings() const { return client_.settings(); }
    bool is_complete() const { return remote_.size && file_.size() == *remote_.size; }

    void start_hash() {
        const HashKind kind = hash_kind(remote_.etag);
        hash_.reset();
        // Without the size the hash of a git object cannot be begun.
        if (kind == HashKind::sha256 || (kind == HashKind::git_blob && remote_.size)) {
            hash_ = std::make_unique<GrowingHash>(file_.path(), kind, remote_.size.value_or(0));
            hash_->start_with(file_.size());
        }
    }

    bool is_as_promised() {
        return !hash_ || hash_->finish(file_.size(), settings().http.cancel) == remote_.etag;
    }

    void restart() {
        hash_.reset();
        file_.clear();
        begun_ = 0;
    }

    void tell() const { progress_({remote_.name.path, begun_, file_.size(), remote_.size}); }

    void append(Bytes bytes) {
        file_.append(bytes);
        const auto shared = buffers_.share(std::move(bytes));
        if (hash_) {
            hash_->advance(file_.size(), shared);
        }
        tell();
    }

    // Until the file is complete; throws when it does not get any further.
    void fetch_all() {
        bool was_renewed = false;
        int n_hops = 0;
        for (int attempt = 0; !is_complete();) {
            const uint64_t before = file_.size();
            const Outcome outcome = fetch_some();
            check(outcome.answer.trouble != Trouble::cancelled && !settings().http.is_cancelled(),
                  ErrorKind::cancelled, "cancelled");
            if (outcome.end == End::complete) {
                check(!remote_.size || is_complete(), ErrorKind::bad_file, to_string(remote_.name),
                      ": ", remote_.address.host, " sends ", file_.size(), " bytes, ",
                      *remote_.size, " are expected; run it again");
                return;
            }
            check(outcome.end != End::web_page, ErrorKind::bad_file, remote_.address.host,
                  " answers with a web page instead of ", to_string(remote_.name),
                  "; is there a login page or a proxy of your network in between?");
            if (outcome.end == End::no_ranges) {
                restart();
                start_hash();
                has_ranges_ = false;
                continue;
            }
            attempt = file_.size() > before ? 0 : attempt + 1;
            const int status = outcome.answer.status;
            if (is_hop(status) && n_hops < kMaxHops) {
                ++n_hops;
                remote_.address = redirected(remote_.address, outcome.answer.header("location"));
                continue;
            }
            const bool expired = !remote_.address.same_origin(settings().endpoint) &&
                                 (status == 401 || status == 403 || status == 404 || status == 410);
            if (expired && !was_renewed) {
                was_renewed = true;  // signed addresses end after some time
                remote_.address = client_.look_up(remote_.name).address;
                continue;
            }
            if (!may_pass(outcome.answer) || attempt >= settings().attempts) {
                fail_with(outcome.answer, remote_.name, remote_.address, settings());
            }
            was_renewed = false;
            wait_before(std::max(attempt - 1, 0), outcome.answer, settings());
        }
    }

    // Whether more than one connection can fetch the rest.
    bool is_divisible() const {
        return has_ranges_ && settings().connections > 1 && remote_.size &&
               *remote_.size - file_.size() > 2 * settings().chunk_bytes;
    }

    Outcome fetch_some() {
        HttpConnection connection(remote_.address, settings().http);
        if (settings().enough_rate > 0) {
            // How fast one connection is shows in a short range first, which is lost time where
            // several are faster.
            constexpr uint64_t kFirst = 256 << 10;
            const uint64_t most = 8 * settings().chunk_bytes;
            for (uint64_t n = kFirst; is_divisible(); n = std::min(8 * n, most)) {
                const uint64_t end = std::min(file_.size() + n, *remote_.size);
                const InOrder part = fetch_in_order(connection, {file_.size(), end});
                if (part.outcome.end != End::complete || is_complete()) {
                    return part.outcome;
                }
                if (part.rate < settings().enough_rate || file_.size() != end) {
                    break;
                }
            }
        }
        return is_divisible() ? fetch_chunks()
                              : fetch_in_order(connection, {file_.size(), std::nullopt}).outcome;
    }

    struct InOrder {
        Outcome outcome;
        double rate = 0;  // bytes per second, from the first ones on
    };

    // Over one connection, written as it arrives.
    InOrder fetch_in_order(HttpConnection& connection, const Range& range) {
        using Clock = std::chrono::steady_clock;
        // Written in pieces of this size, which stay in a core's cache until they are hashed.
        constexpr size_t kPiece = 256 << 10;
        Bytes piece = buffers_.take(kPiece);
        const auto write = [&] {
            if (!piece.empty()) {
                append(std::move(piece));
                piece = buffers_.take(kPiece);
            }
        };
        std::optional<Clock::time_point> start;
        InOrder got;
        got.outcome = fetch(connection, range, [&](std::span<const std::byte> bytes) {
            start = start.value_or(Clock::now());
            const uint64_t size = file_.size() + piece.size() + bytes.size();
            const bool fits = !remote_.size || size <= *remote_.size;
            if (fits && piece.size() + bytes.size() > kPiece) {
                write();
            }
            if (fits) {
                piece.insert(piece.end(), bytes.begin(), bytes.end());
            }
            return fits;
        });
        write();
        const std::chrono::duration<double> elapsed = Clock::now() - start.value_or(Clock::now());
        got.rate = static_cast<double>(file_.size() - range.begin) / elapsed.count();
        return got;
    }

    // One request. `take` gets the bytes of the range in order and returns false to end it.
    Outcome fetch(HttpConnection& connection, const Range& range,
                  const std::function<bool(std::span<const std::byte>)>& take) {
        HttpHeaders headers = client_.headers_for(connection.server());
        const bool is_part = range.begin > 0 || range.end;
        if (is_part) {
            headers["Range"] =
                concat("bytes=", range.begin, "-", range.end ? std::to_string(*range.end - 1) : "");
        }
        Outcome outcome;
        bool is_good = false;
        HttpReceiver receiver;
        receiver.headers = [&](const HttpAnswer& answer) {
            const bool is_bytes = answer.status == 200 || answer.status == 206;
            if (is_bytes && is_web_page(answer, remote_.name.path)) {
                outcome.end = End::web_page;
            } else if (answer.status == 416 || (is_part && answer.status == 200) ||
                       (answer.status == 206 && !holds_range(answer, range, remote_.size))) {
                outcome.end = End::no_ranges;
            } else {
                is_good = is_bytes;
            }
            return is_good;
        };
        receiver.bytes = take;
        outcome.answer = connection.get(connection.server().target, headers, &receiver);
        if (is_good && outcome.answer.trouble == Trouble::none) {
            outcome.end = End::complete;
        }
        return outcome;
    }

    // The rest of the file in chunks over several connections. Chunks that arrive early wait in
    // memory for those before them, so that the file has no holes.
    Outcome fetch_chunks();

    HubClient& client_;
    RemoteFile remote_;
    GrowingFile file_;
    const ProgressSink& progress_;
    BufferPool buffers_;
    std::unique_ptr<GrowingHash> hash_;
    uint64_t begun_ = 0;
    bool has_ranges_ = true;
};

// The chunks of a download and who has which. Chunks are handed out in order, and at most so many
// ahead of the file's end that memory stays bounded.
class ChunkQueue {
  public:
    ChunkQueue(uint64_t begin, uint64_t end, uint64_t chunk_bytes, size_t max_ahead)
        : begin_(begin), end_(end), chunk_bytes_(chunk_bytes), max_ahead_(max_ahead) {}

    size_t n_chunks() const {
        return static_cast<size_t>((end_ - begin_ + chunk_bytes_ - 1) / chunk_bytes_);
    }
    Range range_of(size_t chunk) const {
        const uint64_t begin = begin_ + chunk * chunk_bytes_;
        return {begin, std::min(begin + chunk_bytes_, end_)};
    }

    // The next chunk, as soon as there is room; nothing when none is left or another thread has
    // failed.
    std::optional<size_t> take() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
            return has_failed_ || next_ >= n_chunks() || next_ < n_written_ + max_ahead_;
        });
        if (has_failed_ || next_ >= n_chunks()) {
            return std::nullopt;
        }
        return next_++;
    }

    // Writes this chunk, and those after it that are here, when its turn has come.
    template <typename Write>
    void deliver(size_t chunk, Bytes bytes, const Write& write) {
        std::unique_lock lock(mutex_);
        ready_.emplace(chunk, std::move(bytes));
        if (is_writing_) {
            return;
        }
        is_writing_ = true;
        while (!has_failed_ && ready_.contains(n_written_)) {
            Bytes next = std::move(ready_.extract(n_written_).mapped());
            lock.unlock();
            try {
                write(std::move(next));
            } catch (...) {
                give_up();
                throw;
            }
            lock.lock();
            ++n_written_;
            changed_.notify_all();
        }
        is_writing_ = false;
    }

    void give_up() {
        const std::lock_guard lock(mutex_);
        has_failed_ = true;
        changed_.notify_all();
    }

  private:
    uint64_t begin_, end_, chunk_bytes_;
    size_t max_ahead_;
    std::mutex mutex_;
    std::condition_variable changed_;
    size_t next_ = 0;       // to be handed out
    size_t n_written_ = 0;  // are in the file
    std::map<size_t, Bytes> ready_;
    bool is_writing_ = false;
    bool has_failed_ = false;
};

Outcome Download::fetch_chunks() {
    const int n_connections = settings().connections;
    ChunkQueue queue(file_.size(), *remote_.size, settings().chunk_bytes,
                     2 * static_cast<size_t>(n_connections));
    std::mutex mutex;
    Outcome failure;
    bool has_failed = false;
    // Returns how a chunk ended; it is tried again as a whole download is.
    const auto fetch_chunk = [&](HttpConnection& connection, size_t chunk, Bytes& bytes) {
        const Range whole = queue.range_of(chunk);
        const size_t size = static_cast<size_t>(*whole.end - whole.begin);
        bytes = buffers_.take(size);
        for (int attempt = 0;;) {
            const size_t before = bytes.size();
            const Outcome outcome =
                fetch(connection, {whole.begin + before, whole.end},
                      [&](std::span<const std::byte> more) {
                          const bool fits = bytes.size() + more.size() <= size;
                          if (fits) {
                              bytes.insert(bytes.end(), more.begin(), more.end());
                          }
                          return fits;
                      });
            attempt = bytes.size() > before ? 0 : attempt + 1;
            const bool is_short = outcome.end == End::complete && bytes.size() < size;
            if ((outcome.end == End::complete && !is_short) || outcome.end == End::no_ranges ||
                outcome.end == End::web_page || attempt >= settings().attempts ||
                (!is_short && !may_pass(outcome.answer))) {
                return outcome;
            }
            wait_before(std::max(attempt - 1, 0), outcome.answer, settings());
        }
    };
    const auto work = [&](size_t, size_t) {
        try {
            HttpConnection connection(remote_.address, settings().http);
            while (const auto chunk = queue.take()) {
                Bytes bytes;
                const Outcome outcome = fetch_chunk(connection, *chunk, bytes);
                if (outcome.end != End::complete) {
                    const std::lock_guard lock(mutex);
                    failure = has_failed ? failure : outcome;
                    has_failed = true;
                    queue.give_up();
                    return;
                }
                queue.deliver(*chunk, std::move(bytes),
                              [&](Bytes next) { append(std::move(next)); });
            }
        } catch (...) {
            queue.give_up();
            throw;
        }
    };
    const size_t n = std::min(static_cast<size_t>(n_connections), queue.n_chunks());
    parallel_for(n, static_cast<int>(n), work);
    return has_failed ? failure : Outcome{End::complete, {}};
}

}  // namespace

void download(HubClient& client, const RemoteFile& file, const fs::path& partial,
              const ProgressSink& progress) {
    Download(client, file, partial, progress).run();
}

}  // namespace flux2::hub
