/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Lookups in the call table, which user space fills: the description of a call, and arguments by role. */
#ifndef IOREEL_CALL_TABLE_H
#define IOREEL_CALL_TABLE_H

#include "base/wire.h"
#include "base/config.h"
#include "base/maps.bpf.h"

/*
 * A pointer into the table, because the compiler would copy the struct byte by byte. The barrier keeps the mask, which
 * the verifier needs to see.
 */
static __always_inline const struct call_desc *desc_of(__u64 nr, bool compat)
{
	barrier_var(nr);
	if (compat)
		return (const struct call_desc *)&calls32[nr & (WIRE_CALLS - 1)];
	return (const struct call_desc *)&calls[nr & (WIRE_CALLS - 1)];
}

/* Argument number `which` (1-6); 0: none. The barrier keeps the mask, which the verifier needs to see. */
static __always_inline __u64 arg_of(const struct rec_op *op, __u8 which)
{
	__u32 i = which - 1u;

	if (!which)
		return 0;
	barrier_var(i);
	return op->args[i & 7];
}

#endif
