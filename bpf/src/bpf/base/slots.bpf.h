/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Hashes an address to a slot of a table. inflight/bios.bpf.h explains why such tables replace a BPF hash. */
#ifndef IOREEL_SLOTS_H
#define IOREEL_SLOTS_H

#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Slots tried per address. In a table that is a quarter full, all 4 are taken once in 256 times. */
#define SLOT_TRIES 4

/* The low half of an address, as a number for the verifier. */
static __always_inline __u32 low_half(const void *address)
{
	__u32 low;

	/* A separate move. Otherwise the compiler may shift the pointer itself, which the verifier rejects. */
	asm volatile("%0 = %1" : "=w"(low) : "w"((__u32)(unsigned long)address));
	return low;
}

/* Drops 6 bits of the address: the hashed structs are larger than 64 bytes. */
static __always_inline __u32 slot_of(const void *address, __u32 bits)
{
	return (low_half(address) >> 6) * 2654435761u >> (32 - bits);
}

#endif
