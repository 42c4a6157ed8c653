# `make help` lists the targets. Build output lives outside the checkout, so that a checkout stays small and
# a fresh one builds fast.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/ioreel/target
PREFIX ?= /usr/local
SHELL := /bin/bash

.DEFAULT_GOAL := build
.PHONY: help build release test test-kernels test-kill test-workloads test-corpus test-sanitizer test-package lint check-arm64 package demo bench bench-corpus diagnose-suite fuzz samples install

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

build: ## the debug build, system packages included
	@scripts/setup build
	cargo build --workspace

release: ## the optimised build
	@scripts/setup build
	cargo build --release -p ioreel

test: ## linters and all tests, few of them also on the oldest and the newest stock kernel; not root, those that record are ignored
	@scripts/setup test
	@scripts/test

test-kernels: ## the capture tests in QEMU guests with stock kernels from 6.1 on; prints a table (docs/kernel-support.md)
	@scripts/setup test
	@tests/vm/matrix

test-kill: ## kills the recorder at 50 instants; what it leaves must be valid (root)
	@scripts/setup test
	IOREEL_KILLS=50 cargo test --test end_to_end killed::

test-workloads: ## records a compile of 10000 files, SQLite, PostgreSQL, Postfix with Dovecot: nothing may be lost; and a million short-lived files: memory stays flat (root)
	@scripts/setup workloads
	@scripts/test-workloads

# Rust's sanitizers are for nightly compilers; the variable lets a stable one take them. Its own target keeps build scripts
# and macros out of it.
SANITIZED_TARGET := $(shell uname -m)-unknown-linux-gnu
test-sanitizer: ## unit tests and tests of traces and replay with AddressSanitizer, then FUZZ_REELS (200) mutated reels (root)
	@scripts/setup build
	export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS=detect_leaks=0 IOREEL_SANITIZED=1; \
	cargo test --target $(SANITIZED_TARGET) -p ioreel-replay -p ioreel-traces --lib --test it && \
	cargo build --target $(SANITIZED_TARGET) -p ioreel --no-default-features && \
	cargo test --target $(SANITIZED_TARGET) -p ioreel-traces --test mutants -- --count $${FUZZ_REELS:-200}

test-corpus: ## records tar, git, PostgreSQL and others, replays each on ext4, xfs, btrfs, tmpfs at two paces (root)
	@scripts/setup test
	IOREEL_CORPUS=all cargo test --test end_to_end corpus::
	IOREEL_CORPUS=all cargo test --test end_to_end alike::

lint: ## rustfmt, clippy and clang-format, warnings as errors; cargo deny where it is installed
	@scripts/setup test
	@scripts/lint

check-arm64: ## the recorder compiles for arm64, with the Rust standard library for it from rustup
	@scripts/setup arm64
	@scripts/check-arm64

demo: ## records a real job, replays it on xfs and btrfs, draws all three (root; else from a sample reel)
	@scripts/demo

bench-corpus: ## what recordings made on ext4 foretell of ext4, xfs and btrfs, beside the programs themselves (root, a quiet machine)
	@scripts/setup test
	IOREEL_CORPUS=foretell cargo test --release --test end_to_end corpus::foretells -- --nocapture

bench: ## what recording costs, beside strace, perf and bpftrace (root, a quiet machine)
	@scripts/setup bench
	@scripts/bench

diagnose-suite: ## a sick workload and a benign twin for each pattern of `ioreel diagnose`; prints precision and recall (root)
	@scripts/setup test
	cargo build --release -p ioreel
	@tests/diagnosis/run

fuzz: ## damaged input for the importers, FUZZ_SECONDS (300) each, and FUZZ_REELS (1000) mutated reels for all that reads reels
	@scripts/setup build
	IOREEL_FUZZ_SECONDS=$${FUZZ_SECONDS:-300} cargo test -p ioreel-traces --test it fuzz:: -- --nocapture
	cargo build --workspace
	cargo test --workspace --test mutants -- --count $${FUZZ_REELS:-1000}

samples: ## makes the reels of traces/samples anew (root)
	@scripts/make-samples

package: ## a program that needs nothing but libc, and a .deb with man pages, completions and the systemd unit
	@scripts/setup package
	@scripts/package

test-package: ## tries the package in a bare Debian and in a QEMU guest (root)
	@scripts/setup package
	@scripts/test-package

install: release ## installs program and systemd unit under PREFIX (/usr/local)
	install -s -D -m 755 "$(CARGO_TARGET_DIR)/release/ioreel" "$(DESTDIR)$(PREFIX)/bin/ioreel"
	install -d "$(DESTDIR)$(PREFIX)/lib/systemd/system"
	sed 's,/usr/local/,$(PREFIX)/,' packaging/systemd/ioreel-record.service \
	  >"$(DESTDIR)$(PREFIX)/lib/systemd/system/ioreel-record.service"
