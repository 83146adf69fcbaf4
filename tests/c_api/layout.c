// The structs of flux2.h in memory: compiled so that padding is an error, and with the offsets that
// their fields have had since 0.2.0, which programs built then rely on. A struct may grow: its new
// fields are added here and the size follows.
#include <flux2/flux2.h>

// Enums are 32 bits wide.
typedef char flux2_stage_is_not_32_bits_wide[sizeof(flux2_stage) == 4 ? 1 : -1];

#if UINTPTR_MAX == UINT64_MAX
#define AT(type, field, offset) \
    typedef char type##_##field##_moved[offsetof(type, field) == (offset) ? 1 : -1]
#define SIZE(type, bytes) typedef char type##_has_another_size[sizeof(type) == (bytes) ? 1 : -1]

AT(flux2_device, size, 0);
AT(flux2_device, name, 8);
AT(flux2_device, description, 16);
AT(flux2_device, free_bytes, 24);
AT(flux2_device, total_bytes, 32);
AT(flux2_device, is_software, 40);
AT(flux2_device, reserved, 44);
SIZE(flux2_device, 48);

AT(flux2_device_list, count, 0);
AT(flux2_device_list, items, 8);
AT(flux2_device_list, memory, 16);
SIZE(flux2_device_list, 24);

AT(flux2_image, width, 0);
AT(flux2_image, height, 4);
AT(flux2_image, rgb, 8);
SIZE(flux2_image, 16);

AT(flux2_mask, width, 0);
AT(flux2_mask, height, 4);
AT(flux2_mask, values, 8);
SIZE(flux2_mask, 16);

AT(flux2_image_text, key, 0);
AT(flux2_image_text, text, 8);
SIZE(flux2_image_text, 16);

AT(flux2_image_text_list, count, 0);
AT(flux2_image_text_list, items, 8);
AT(flux2_image_text_list, memory, 16);
SIZE(flux2_image_text_list, 24);

AT(flux2_bytes, count, 0);
AT(flux2_bytes, data, 8);
SIZE(flux2_bytes, 16);

AT(flux2_model_files, size, 0);
AT(flux2_model_files, transformer, 8);
AT(flux2_model_files, text_encoder, 16);
AT(flux2_model_files, vae, 24);
AT(flux2_model_files, taesd, 32);
AT(flux2_model_files, choice, 40);
AT(flux2_model_files, memory, 48);
AT(flux2_model_files, taesd_preview_only, 56);
AT(flux2_model_files, reserved, 60);
SIZE(flux2_model_files, 64);

AT(flux2_file_info, size, 0);
AT(flux2_file_info, path, 8);
AT(flux2_file_info, part, 16);
AT(flux2_file_info, name, 24);
AT(flux2_file_info, format, 32);
AT(flux2_file_info, naming, 40);
AT(flux2_file_info, types, 48);
AT(flux2_file_info, scheme, 56);
AT(flux2_file_info, partners, 64);
AT(flux2_file_info, variant, 72);
AT(flux2_file_info, variant_reason, 80);
AT(flux2_file_info, notes, 88);
AT(flux2_file_info, n_notes, 96);
AT(flux2_file_info, n_parameters, 104);
AT(flux2_file_info, size_bytes, 112);
AT(flux2_file_info, text_width, 120);
AT(flux2_file_info, latent_channels, 128);
AT(flux2_file_info, default_steps, 136);
AT(flux2_file_info, default_guidance, 140);
AT(flux2_file_info, default_width, 144);
AT(flux2_file_info, default_height, 148);
AT(flux2_file_info, distilled, 152);
AT(flux2_file_info, reserved, 156);
SIZE(flux2_file_info, 160);

AT(flux2_file_list, count, 0);
AT(flux2_file_list, items, 8);
AT(flux2_file_list, memory, 16);
SIZE(flux2_file_list, 24);

AT(flux2_adapter, size, 0);
AT(flux2_adapter, file, 8);
AT(flux2_adapter, include, 16);
AT(flux2_adapter, exclude, 24);
AT(flux2_adapter, block_strengths, 32);
AT(flux2_adapter, strength, 40);
AT(flux2_adapter, reserved, 44);
SIZE(flux2_adapter, 48);

AT(flux2_adapter_fact, name, 0);
AT(flux2_adapter_fact, text, 8);
SIZE(flux2_adapter_fact, 16);

AT(flux2_adapter_info, size, 0);
AT(flux2_adapter_info, path, 8);
AT(flux2_adapter_info, kinds, 16);
AT(flux2_adapter_info, dialect, 24);
AT(flux2_adapter_info, format, 32);
AT(flux2_adapter_info, ranks, 40);
AT(flux2_adapter_info, made_for, 48);
AT(flux2_adapter_info, touches, 56);
AT(flux2_adapter_info, facts, 64);
AT(flux2_adapter_info, n_facts, 72);
AT(flux2_adapter_info, unused, 80);
AT(flux2_adapter_info, n_unused, 88);
AT(flux2_adapter_info, n_modules, 96);
AT(flux2_adapter_info, size_bytes, 104);
SIZE(flux2_adapter_info, 112);

AT(flux2_load_options, size, 0);
AT(flux2_load_options, device, 8);
AT(flux2_load_options, type, 16);
AT(flux2_load_options, variant, 24);
AT(flux2_load_options, cache_folder, 32);
AT(flux2_load_options, cache_bytes, 40);
AT(flux2_load_options, max_device_bytes, 48);
AT(flux2_load_options, threads, 56);
AT(flux2_load_options, keep_loaded, 60);
AT(flux2_load_options, repack, 64);
AT(flux2_load_options, unpack, 68);
AT(flux2_load_options, transformer_device, 72);
AT(flux2_load_options, transformer_type, 80);
AT(flux2_load_options, text_encoder_device, 88);
AT(flux2_load_options, text_encoder_type, 96);
AT(flux2_load_options, vae_device, 104);
AT(flux2_load_options, vae_type, 112);
AT(flux2_load_options, split, 120);
SIZE(flux2_load_options, 128);

AT(flux2_step, size, 0);
AT(flux2_step, what, 8);
AT(flux2_step, preview, 16);
AT(flux2_step, share, 24);
AT(flux2_step, stage, 32);
AT(flux2_step, step, 36);
AT(flux2_step, n_steps, 40);
AT(flux2_step, reserved, 44);
SIZE(flux2_step, 48);

AT(flux2_request, size, 0);
AT(flux2_request, prompt, 8);
AT(flux2_request, negative_prompt, 16);
AT(flux2_request, references, 24);
AT(flux2_request, n_references, 32);
AT(flux2_request, init, 40);
AT(flux2_request, sigmas, 48);
AT(flux2_request, n_sigmas, 56);
AT(flux2_request, generator, 64);
AT(flux2_request, noise_file, 72);
AT(flux2_request, embeds_file, 80);
AT(flux2_request, progress, 88);
AT(flux2_request, progress_data, 96);
AT(flux2_request, cancel, 104);
AT(flux2_request, seed, 112);
AT(flux2_request, has_seed, 120);
AT(flux2_request, width, 124);
AT(flux2_request, height, 128);
AT(flux2_request, match_reference, 132);
AT(flux2_request, steps, 136);
AT(flux2_request, guidance, 140);
AT(flux2_request, strength, 144);
AT(flux2_request, text_length, 148);
AT(flux2_request, fit_size, 152);
AT(flux2_request, preview, 156);
AT(flux2_request, adapters, 160);
AT(flux2_request, n_adapters, 168);
AT(flux2_request, strict_adapters, 176);
AT(flux2_request, reserved, 180);
AT(flux2_request, mask, 184);
AT(flux2_request, reference_roles, 192);
AT(flux2_request, reference_pixels, 200);
AT(flux2_request, inpaint_area, 208);
AT(flux2_request, mask_invert, 212);
AT(flux2_request, mask_grow, 216);
AT(flux2_request, mask_blur, 220);
AT(flux2_request, mask_blend, 224);
AT(flux2_request, inpaint_padding, 228);
AT(flux2_request, outpaint_left, 232);
AT(flux2_request, outpaint_top, 236);
AT(flux2_request, outpaint_right, 240);
AT(flux2_request, outpaint_bottom, 244);
AT(flux2_request, cfg_scale, 248);
AT(flux2_request, guidance_from, 252);
AT(flux2_request, guidance_until, 256);
AT(flux2_request, keep_colours, 260);
SIZE(flux2_request, 264);

AT(flux2_result, size, 0);
AT(flux2_result, image, 8);
AT(flux2_result, sigmas, 24);
AT(flux2_result, n_sigmas, 32);
AT(flux2_result, seed, 40);
AT(flux2_result, device_peak, 48);
AT(flux2_result, host_peak, 56);
AT(flux2_result, load_seconds, 64);
AT(flux2_result, encode_prompt_seconds, 72);
AT(flux2_result, encode_references_seconds, 80);
AT(flux2_result, denoise_seconds, 88);
AT(flux2_result, decode_seconds, 96);
AT(flux2_result, steps, 104);
AT(flux2_result, guidance, 108);
AT(flux2_result, prompt_cached, 112);
AT(flux2_result, cfg_scale, 116);
AT(flux2_result, prompt, 120);
AT(flux2_result, references_cached, 128);
AT(flux2_result, references_encoded, 132);
SIZE(flux2_result, 136);

AT(flux2_stage_memory, size, 0);
AT(flux2_stage_memory, stage, 8);
AT(flux2_stage_memory, placement, 16);
AT(flux2_stage_memory, device_weights, 24);
AT(flux2_stage_memory, device_compute, 32);
AT(flux2_stage_memory, host_weights, 40);
AT(flux2_stage_memory, host_compute, 48);
AT(flux2_stage_memory, mapped, 56);
AT(flux2_stage_memory, seconds, 64);
SIZE(flux2_stage_memory, 72);

AT(flux2_memory_plan, size, 0);
AT(flux2_memory_plan, n_stages, 8);
AT(flux2_memory_plan, stages, 16);
AT(flux2_memory_plan, memory, 24);
AT(flux2_memory_plan, device_peak, 32);
AT(flux2_memory_plan, host_peak, 40);
AT(flux2_memory_plan, mapped_peak, 48);
AT(flux2_memory_plan, n_pictures, 56);
AT(flux2_memory_plan, seconds, 64);
SIZE(flux2_memory_plan, 72);
#endif
