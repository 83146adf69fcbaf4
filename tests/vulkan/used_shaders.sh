#!/bin/sh
# Shader compiler of tests/vulkan/run.sh: glslc, but shaders that its runs never use, of operations that FLUX.2 does not have, of experts
# and of types that no recording is replayed in, become the one in EMPTY_SHADER, since building the backend is mostly compiling shaders. A
# run that uses one misses its recording.
# Usage: as glslc. The first shader of a file has -MF and also lists what it includes.
used=yes
last=
source=
out=
included=
for word; do
    case $word in
        -DMUL_MAT_ID=*) used=no ;;
        # Shaders of attention all have DATA_A_IQ4_NL.
        -DDATA_A_F32=* | -DDATA_A_F16=* | -DDATA_A_BF16=* | -DDATA_A_Q8_0=* | -DDATA_A_Q[456]_K=* | -DDATA_A_IQ4_NL=*) ;;
        -DDATA_A_*) used=no ;;
        *.comp) source=$word ;;
    esac
    case $last in
        -o) out=$word ;;
        -MF) included=$word ;;
    esac
    last=$word
done
case $source in
    '' | */feature-tests/*) exec glslc "$@" ;;  # questions about glslc itself
esac
case $(basename "$source" .comp) in
    add | concat | contig_copy | conv2d_mm | copy | copy_transpose* | dequant_f32 | dequant_q* | group_norm | mul | multi_add | norm | pad) ;;
    flash_attn | flash_attn_mask_opt | flash_attn_split_k_reduce | get_rows | get_rows_quant | mul_m* | quantize_q8_1 | repeat) ;;
    rms_norm | rms_norm_partials | rope_* | scale | soft_max | soft_max_large* | sub | swiglu | unary | upscale) ;;
    *) used=no ;;
esac
if [ $used = yes ]; then
    exec glslc "$@"
fi
cp "$EMPTY_SHADER" "$out"
[ -z "$included" ] || echo "$out: $source" > "$included"
