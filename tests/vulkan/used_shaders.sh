#!/bin/sh
# Shader compiler of tests/vulkan/run.sh: glslc, but shaders that its runs never use, of experts and of types that no recording is replayed
# in, become the one in EMPTY_SHADER: a quarter of the time of building the backend is theirs. A run that uses one misses its recording.
# Usage: as glslc. The first shader of a file (-MF), which also lists what it includes, is always compiled. Those of attention all have
# DATA_A_IQ4_NL.
used=yes
last=
out=
for word; do
    case $word in
        -DMUL_MAT_ID=*) used=no ;;
        -DDATA_A_F32=* | -DDATA_A_F16=* | -DDATA_A_BF16=* | -DDATA_A_Q8_0=* | -DDATA_A_Q[456]_K=* | -DDATA_A_IQ4_NL=*) ;;
        -DDATA_A_*) used=no ;;
    esac
    [ "$last" != -o ] || out=$word
    [ "$word" != -MF ] || { used=yes && break; }
    last=$word
done
if [ $used = yes ]; then
    exec glslc "$@"
fi
cp "$EMPTY_SHADER" "$out"
