/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Hash of an address into a table of slots. inflight/bios.bpf.h explains why these tables replace a BPF hash. */
#ifndef IOREEL_SLOTS_H
#define IOREEL_SLOTS_H

#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Places where an address may be: with the table a quarter full, all are taken once in 256 times. */
#define SLOT_TRIES 4

/* A number to the verifier, unlike the address. */
static __always_inline __u32 low_half(const void *address)
{
	__u32 low;

	/* A move of its own: else the compiler may shift the pointer itself, which is not allowed. */
	asm volatile("%0 = %1" : "=w"(low) : "w"((__u32)(unsigned long)address));
	return low;
}

/* Both structs are larger than 64 bytes. */
static __always_inline __u32 slot_of(const void *address, __u32 bits)
{
	return (low_half(address) >> 6) * 2654435761u >> (32 - bits);
}

#endif
