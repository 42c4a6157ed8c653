/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Constants of the system call interface that several headers need. */
#ifndef IOREEL_UAPI_H
#define IOREEL_UAPI_H

#include "base/vmlinux.h"

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFDIR 0040000
#define S_IFBLK 0060000

/* include/uapi/linux/fcntl.h, asm-generic/fcntl.h */
#define O_APPEND 02000
#define AT_FDCWD -100

/* include/uapi/linux/uio.h: UIO_MAXIOV, the maximum number of buffers in a vector. */
#define MAX_IOVECS 1024

/* include/uapi/asm-generic/mman-common.h, mman.h */
#define MAP_ANONYMOUS 0x20
#define PROT_EXEC 0x4

#endif
