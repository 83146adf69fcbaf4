#include "pipeline/part_backends.hpp"

#include "base/check.hpp"
#include "base/comma_list.hpp"
#include "base/letter_case.hpp"
#include "base/parse_number.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace flux2 {
namespace {

const PartOptions& options_of(const LoadOptions& options, Part part) {
    switch (part) {
        case Part::transformer:
            return options.transformer;
        case Part::text_encoder:
            return options.text_encoder;
        case Part::vae:
        case Part::tiny_autoencoder:
            break;
    }
    return options.vae;
}

}  // namespace

const std::string& chosen_device(const LoadOptions& options, Part part) {
    const std::string& own = options_of(options, part).device;
    return own.empty() ? options.device : own;
}

const std::string& chosen_type(const LoadOptions& options, Part part) {
    const std::string& own = options_of(options, part).type;
    return own.empty() ? options.type : own;
}

namespace {

std::vector<double> parse_shares(const std::string& split) {
    std::vector<double> shares;
    for (const std::string& item : split_list(split)) {
        const double share = static_cast<double>(parse_float(concat(Setting::split), item));
        check(share > 0 && share <= 1e6, ErrorKind::bad_argument, Setting::split, " ", split,
              " has a share of ", item, "; use auto, or numbers above 0 such as 2,1");
        shares.push_back(share);
    }
    return shares;
}

std::string join(const std::vector<std::string>& items) {
    std::string list;
    for (const std::string& item : items) {
        list += (list.empty() ? "" : ",") + item;
    }
    return list;
}

// The devices for a split where the user names none: all others, then the CPU.
std::vector<std::string> devices_to_share(size_t n_wanted) {
    std::vector<std::string> names;
    for (const DeviceInfo& device : list_devices()) {
        if (device.name != "CPU") {
            names.push_back(device.name);
        }
    }
    if (names.size() < std::max<size_t>(n_wanted, 2)) {
        names.emplace_back("CPU");
    }
    if (n_wanted > 0) {
        check(names.size() >= n_wanted, ErrorKind::bad_argument, Setting::split, " names ",
              n_wanted, " shares, but there are only these devices: ", join(names));
        names.resize(n_wanted);
    }
    return names;
}

double free_memory(const std::string& name) {
    for (const DeviceInfo& device : list_devices()) {
        if (device.name == name) {
            return std::max(static_cast<double>(device.free_bytes), 1.0);
        }
    }
    return 1.0;
}

}  // namespace

LoadOptions with_settled_split(LoadOptions options) {
    const bool is_auto = options.split.empty() || options.split == "auto";
    std::vector<std::string> names = split_list(options.transformer.device);
    if (options.split.empty() && names.size() == 1) {
        return options;
    }
    const std::vector<double> given = is_auto ? std::vector<double>() : parse_shares(options.split);
    if (options.transformer.device.empty()) {
        names = devices_to_share(given.size());
    }
    check(is_auto || given.size() == names.size(), ErrorKind::bad_argument, Setting::split, " ",
          options.split, " has ", given.size(), " shares for ", names.size(),
          " devices; name as many");
    std::vector<std::string> shares;
    for (size_t i = 0; i < names.size(); ++i) {
        names[i] = device_name(names[i]);
        check(std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) ==
                  names.begin() + static_cast<std::ptrdiff_t>(i),
              ErrorKind::bad_argument, "the transformer's devices name ", names[i],
              " twice; name each once");
        shares.push_back(concat(is_auto ? free_memory(names[i]) / 1e9 : given[i]));
    }
    options.transformer.device = join(names);
    options.split = names.size() > 1 ? join(shares) : "";
    return options;
}

LoadOptions without_devices(LoadOptions options, const std::vector<std::string>& lost) {
    const auto is_lost = [&](const std::string& device) {
        return std::any_of(lost.begin(), lost.end(), [&](const std::string& name) {
            return to_lower(name) == to_lower(device);
        });
    };
    std::vector<DeviceShare> left = transformer_devices(options);
    std::erase_if(left, [&](const DeviceShare& share) { return is_lost(share.device); });
    if (is_lost(options.device)) {
        options.device = "auto";
    }
    for (PartOptions* part : {&options.text_encoder, &options.vae}) {
        part->device = is_lost(part->device) ? "" : part->device;
    }
    std::vector<std::string> names, shares;
    for (const DeviceShare& share : left) {
        names.push_back(share.device);
        shares.push_back(concat(share.share));
    }
    options.transformer.device = join(names);
    options.split = names.size() > 1 ? join(shares) : "";
    return options;
}

std::vector<DeviceShare> transformer_devices(const LoadOptions& options) {
    if (options.split.empty()) {
        return {{chosen_device(options, Part::transformer), 1}};
    }
    const std::vector<std::string> names = split_list(options.transformer.device);
    const std::vector<double> shares = parse_shares(options.split);
    std::vector<DeviceShare> devices;
    for (size_t i = 0; i < names.size(); ++i) {
        devices.push_back({names[i], shares.at(i)});
    }
    return devices;
}

PartBackends::PartBackends(const LoadOptions& options, BackendUse use)
    : options_(options), use_(use) {
    for (const Part part : kAllParts) {
        of(part);
    }
    of_blocks();
}

Backend& PartBackends::of(Part part) {
    return named(part == Part::transformer ? transformer_devices(options_).front().device
                                           : chosen_device(options_, part));
}

std::vector<BlockShare> PartBackends::of_blocks() {
    std::vector<BlockShare> shares;
    for (const DeviceShare& device : transformer_devices(options_)) {
        shares.push_back({&named(device.device), device.share});
    }
    return shares;
}

Backend& PartBackends::cpu() {
    return named("CPU");
}

Backend& PartBackends::named(const std::string& device) {
    if (const auto known = by_request_.find(device); known != by_request_.end()) {
        return *known->second;  // even if it was lost since
    }
    const std::string name = device_name(device);
    const auto found = std::find_if(backends_.begin(), backends_.end(),
                                    [&](const auto& backend) { return backend->name() == name; });
    Backend* backend = found == backends_.end() ? nullptr : found->get();
    if (backend == nullptr) {
        backends_.push_back(std::make_unique<Backend>(name, options_.threads, use_));
        backend = backends_.back().get();
        backend->set_cancel(cancel_);
    }
    by_request_[device] = backend;
    return *backend;
}

std::vector<Backend*> PartBackends::all() {
    std::vector<Backend*> result;
    for (const auto& backend : backends_) {
        result.push_back(backend.get());
    }
    return result;
}

void PartBackends::set_cancel(const std::atomic<bool>* flag) {
    cancel_ = flag;
    for (const auto& backend : backends_) {
        backend->set_cancel(flag);
    }
}

}  // namespace flux2
