// flux2 plan: what a picture would take in memory.
#pragma once

namespace flux2::cli {

int plan(int argc, char** argv);

}  // namespace flux2::cli
