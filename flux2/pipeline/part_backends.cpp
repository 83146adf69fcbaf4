#include "pipeline/part_backends.hpp"

#include <algorithm>

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

PartBackends::PartBackends(const LoadOptions& options, BackendUse use)
    : options_(options), use_(use) {
    for (const Part part : kAllParts) {
        of(part);
    }
}

Backend& PartBackends::of(Part part) {
    return named(chosen_device(options_, part));
}

Backend& PartBackends::cpu() {
    return named("CPU");
}

Backend& PartBackends::named(const std::string& device) {
    const std::string name = device_name(device);
    const auto found = std::find_if(backends_.begin(), backends_.end(),
                                    [&](const auto& backend) { return backend->name() == name; });
    if (found != backends_.end()) {
        return **found;
    }
    backends_.push_back(std::make_unique<Backend>(name, options_.threads, use_));
    backends_.back()->set_cancel(cancel_);
    return *backends_.back();
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
