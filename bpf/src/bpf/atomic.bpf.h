/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Programs that keep their CPU. They write what belongs to a CPU (rings, ledger, scratch), and while a program is in
 * the middle of its work on a CPU the kernel skips it for all other tasks there, so a task that loses the CPU in there
 * costs the others their events. Tracepoints used to run programs with preemption disabled; kernels on which they no
 * longer do are told by `preemptible`.
 */
#ifndef IOREEL_ATOMIC_H
#define IOREEL_ATOMIC_H

/* Set before loading; elsewhere what follows is gone once the programs are loaded. */
const volatile bool preemptible = false;

extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;
extern void bpf_local_irq_save(unsigned long *flags) __ksym __weak;
extern void bpf_local_irq_restore(unsigned long *flags) __ksym __weak;

static __always_inline void keep_cpu(void)
{
	if (preemptible)
		bpf_preempt_disable();
}

/*
 * With interrupts disabled, enabling preemption does not look whether another task waits for the CPU, nor does enabling
 * interrupts: that task gets its turn at the next opportunity, which is after the program. Left are some instructions
 * before keep_cpu and after this in which an interrupt may come.
 */
static __noinline void enable_later(void)
{
	unsigned long flags;

	bpf_local_irq_save(&flags);
	bpf_preempt_enable();
	bpf_local_irq_restore(&flags);
}

/* Calls for it: the stacks of programs are full on kernels where this is not needed. */
static __always_inline void yield_cpu(void)
{
	if (preemptible)
		enable_later();
}

/* BPF_PROG for programs of tracepoints that are not called with preemption disabled anyway. */
#define ATOMIC_PROG(name, args...)                                                                                     \
	name(unsigned long long *ctx);                                                                                 \
	static __always_inline int ____##name(unsigned long long *ctx, ##args);                                        \
	int name(unsigned long long *ctx)                                                                              \
	{                                                                                                              \
		_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wint-conversion\"") keep_cpu();      \
		____##name(___bpf_ctx_cast(args));                                                                     \
		yield_cpu();                                                                                           \
		return 0;                                                                                              \
		_Pragma("GCC diagnostic pop")                                                                          \
	}                                                                                                              \
	static __always_inline int ____##name(unsigned long long *ctx, ##args)

#endif
