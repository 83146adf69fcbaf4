// Structs that start with their own size and grow at the end.
#pragma once

#include "base/check.hpp"
#include "c_api/guarded.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace flux2::c_api {

template <typename T>
bool is_known(const T* given, size_t smallest) {
    return given != nullptr && given->size >= smallest && given->size <= sizeof(T);
}

template <typename T>
void check_size(const T* given, const char* name, size_t smallest = sizeof(size_t)) {
    check_given(given, name);
    check(is_known(given, smallest), ErrorKind::bad_argument, name, " says it is ", given->size,
          " bytes large, this library knows ", smallest, " to ", sizeof(T), "; start with ", name,
          "_default(), and use a header no newer than the library");
}

// Fields that an older caller does not have keep their defaults.
template <typename T>
T completed(const T* given, const char* name, const T& defaults) {
    check_size(given, name);
    T full = defaults;
    std::memcpy(&full, given, given->size);
    return full;
}

// A size larger than the known one is kept, so that the next call can refuse it.
template <typename T>
void init(T* target, size_t size, const T& defaults) {
    if (target == nullptr || size < sizeof(size_t)) {
        return;
    }
    std::memset(static_cast<void*>(target), 0, size);
    std::memcpy(static_cast<void*>(target), &defaults, std::min(size, sizeof(T)));
    target->size = size;
}

}  // namespace flux2::c_api
