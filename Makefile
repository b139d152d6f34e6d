# turbidite: build, test, install. `make help` lists the targets.
#
# One invocation builds one MODE into $(BUILD)/$(MODE); the targets named after a mode call make again with
# it. Folders are found by wildcard, so a new source file needs no line here.
#
# Layers, lowest first. Each becomes one archive; a test links its own layer and those before it, so that a
# call upward does not link.
LAYERS := base io sstable memtable iterators index compactor engine ingest

MODE    ?= release
BUILD   ?= build
OUT     := $(BUILD)/$(MODE)
CC      := $(if $(filter default,$(origin CC)),gcc,$(CC))
CXX     := $(if $(filter default,$(origin CXX)),g++,$(CXX))
AR      := $(if $(filter default,$(origin AR)),ar,$(AR))
OBJCOPY ?= objcopy
DESTDIR ?=
prefix  ?= /usr/local
bindir  ?= $(prefix)/bin
libdir  ?= $(prefix)/lib
includedir ?= $(prefix)/include
mandir  ?= $(prefix)/share/man
SHELL   := /bin/sh

# The version is the public header's; the major one is the SONAME's.
header  := include/turbidite/turbidite.h
version_of = $(shell sed -n 's/^\#define TURB_VERSION_$(1) //p' $(header) 2>/dev/null)
VERSION := $(call version_of,MAJOR).$(call version_of,MINOR).$(call version_of,PATCH)
SONAME  := libturbidite.so.$(call version_of,MAJOR)

V ?= 0
ifeq ($(V),0)
say = @printf '  %-7s %s\n' $(1) '$(patsubst $(BUILD)/%,%,$@)';
else
say =
endif

.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all

# ---- flags ----------------------------------------------------------------------------------------------

is_clang := $(findstring clang,$(notdir $(CC)))
arch     := $(shell uname -m)

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wpointer-arith -Wcast-qual -Wundef \
            -Wvla -Wwrite-strings -Wformat=2 -Wimplicit-fallthrough -Wmissing-declarations
C_WARNINGS := -Werror=implicit-function-declaration -Werror=incompatible-pointer-types -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition

# No contraction: sums must give the same bits with every compiler of one instruction set; kernels that want
# fused operations say so. No strict aliasing: pages are used in place.
BASE_FLAGS := -g -fPIC -fvisibility=hidden -ffp-contract=off -fno-strict-aliasing -pthread
DEFINES    := -D_GNU_SOURCE
INCLUDES   := -I. -Iinclude

mode_cflags_debug    := -O0 -DTURB_DEBUG
mode_cflags_release  := -O2 -DNDEBUG
mode_cflags_asan     := -O1 -DTURB_DEBUG -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
mode_cflags_ubsan    := -O1 -DTURB_DEBUG -fno-omit-frame-pointer -fsanitize=undefined -fno-sanitize-recover=all
mode_cflags_tsan     := -O1 -DTURB_DEBUG -fno-omit-frame-pointer -fsanitize=thread
mode_cflags_coverage := -O0 -DTURB_DEBUG --coverage -fprofile-update=atomic
mode_cflags_fuzz     := -O1 -DTURB_DEBUG -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
MODES := debug release asan ubsan tsan coverage fuzz
ifeq ($(filter $(MODE),$(MODES)),)
$(error MODE=$(MODE) is none of: $(MODES))
endif

mode_ldflags_asan     := -fsanitize=address,undefined
mode_ldflags_ubsan    := -fsanitize=undefined
mode_ldflags_tsan     := -fsanitize=thread
mode_ldflags_coverage := --coverage
mode_ldflags_fuzz     := -fsanitize=address,undefined
sanitized := $(filter asan ubsan tsan fuzz,$(MODE))

ifeq ($(MODE),fuzz)
CC := $(if $(is_clang),$(CC),clang)
is_clang := clang
MODE_CFLAGS := $(mode_cflags_fuzz) -fsanitize=fuzzer-no-link
else
MODE_CFLAGS := $(mode_cflags_$(MODE))
endif
MODE_LDFLAGS := $(mode_ldflags_$(MODE))

# LTO in release with gcc. Objects are fat: the tests link the plain code in them (quick), the library and the
# benches the optimised whole. clang 14 knows no fat objects, so LTO is off there unless LTO=1 and lld is used.
LTO ?= $(if $(is_clang),0,1)
ifeq ($(MODE)-$(LTO),release-1)
LTO_CFLAGS := $(if $(is_clang),-flto,-flto=auto -ffat-lto-objects)
LTO_LDFLAGS := $(if $(is_clang),-flto -fuse-ld=lld,-flto=auto)
endif

# The runner of tests: Criterion, or our own where Criterion's sandbox does not start (tsan) or disturbs.
PLAIN_RUNNER := $(if $(filter tsan coverage,$(MODE)),1,)

# Not yet expanded: single targets change a part.
ALL_CFLAGS    = -std=gnu11 $(BASE_FLAGS) $(MODE_CFLAGS) $(LTO_CFLAGS) $(DEFINES) $(INCLUDES) $(CPPFLAGS) $(CFLAGS)
ALL_CXXFLAGS  = -std=gnu++17 $(BASE_FLAGS) $(MODE_CFLAGS) $(DEFINES) $(INCLUDES) $(CPPFLAGS) $(CXXFLAGS)
ALL_LDFLAGS  := -pthread $(MODE_LDFLAGS) -Wl,--as-needed $(LDFLAGS)
flags_line   := $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)
LIBS         := -luring -lzstd -lz -lm
JEMALLOC     := $(if $(sanitized),,-ljemalloc)
TEST_DEFINES := $(if $(PLAIN_RUNNER),-DTURB_PLAIN_RUNNER,)
TEST_LIBS    := $(if $(PLAIN_RUNNER),,-lcriterion)

# Instruction sets by file name; what a machine cannot have is not built.
# gcc's debug mode takes the tails of short loads for overflows: -Wno-stringop-overflow.
simd_quiet  := $(if $(is_clang),,-Wno-stringop-overflow)
simd_avx2   := -mavx2 -mfma -mf16c $(simd_quiet)
simd_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512bf16 -mavx512vpopcntdq -mfma -mf16c $(simd_quiet)
simd_skip   := $(if $(filter x86_64,$(arch)),,%_avx2.c %_avx512.c) $(if $(filter aarch64,$(arch)),,%_neon.c)
# clang needs minutes for a file of inlined kernels under both sanitizers; gcc's modes check them.
simd_plain  := $(if $(and $(is_clang),$(sanitized)),-fno-sanitize=all,)
simd_flags   = $(if $(filter %_avx2,$*),$(simd_avx2) $(simd_plain),)$(if $(filter %_avx512,$*),$(simd_avx512) $(simd_plain),)

# ---- sources --------------------------------------------------------------------------------------------

sources_in  = $(filter-out $(simd_skip),$(sort $(wildcard $(1)/*.c $(1)/*/*.c)))
objects_of  = $(patsubst %.c,$(OUT)/obj/%.o,$(1))
$(foreach l,$(LAYERS),$(eval sources_$(l) := $(call sources_in,$(l))))
layers     := $(foreach l,$(LAYERS),$(if $(sources_$(l)),$(l),))
archive     = $(OUT)/lib$(1).a
archives   := $(foreach l,$(layers),$(call archive,$(l)))
lib_sources := $(foreach l,$(layers),$(sources_$(l)))
lib_objects := $(call objects_of,$(lib_sources))

# Layers up to and including $(1), highest first, as the linker wants them.
upto        = $(call upto_,$(1),$(layers),)
upto_       = $(if $(2),$(if $(filter $(1),$(firstword $(2))),$(firstword $(2)) $(3),$(call upto_,$(1),$(wordlist 2,99,$(2)),$(firstword $(2)) $(3))),$(3))
# A test folder that is no layer links all of them.
test_layers = $(call upto,$(1))

cli_sources     := $(sort $(wildcard cli/*.c))
example_sources := $(sort $(wildcard docs/examples/*.c))
support_sources := $(sort $(wildcard tests/support/*.c))
test_sources    := $(sort $(foreach d,$(wildcard tests/*),$(wildcard $(d)/*_test.c $(d)/*/*_test.c)))
# Shared code of one test folder: every other .c in it, linked into the tests of that folder.
fuzz_sources    := $(sort $(wildcard tests/fuzz/*_fuzz.c))
bench_sources   := $(sort $(wildcard bench/*_bench.c))
bench_shared    := $(filter-out $(bench_sources) $(simd_skip),$(sort $(wildcard bench/*.c)))
rival_sources   := $(sort $(wildcard bench/rivals/*.c bench/rivals/*.cc))

test_binaries   := $(patsubst %_test.c,$(OUT)/%_test,$(test_sources))
thread_tests    := $(filter %_threads_test,$(test_binaries)) \
                   $(foreach t,$(shell cat tests/tsan.list 2>/dev/null | sed 's/\#.*//'),$(filter $(OUT)/tests/$(t),$(test_binaries)))
replay_binaries := $(patsubst tests/fuzz/%_fuzz.c,$(OUT)/tests/fuzz/%_replay,$(fuzz_sources))
fuzz_binaries   := $(patsubst tests/fuzz/%_fuzz.c,$(OUT)/fuzz/%,$(fuzz_sources))
bench_binaries  := $(patsubst bench/%_bench.c,$(OUT)/bench/%,$(bench_sources))
bench_names     := $(patsubst bench/%_bench.c,%,$(bench_sources))
man_pages       := $(sort $(wildcard docs/man/*.1 docs/man/*.3))

# ---- objects and archives -------------------------------------------------------------------------------

# Rewritten when compiler or flags change, so that no stale object survives them.
$(OUT)/flags: FORCE
	@mkdir -p $(OUT)
	@echo '$(flags_line)' | cmp -s - $@ || echo '$(flags_line)' >$@
FORCE:

$(OUT)/obj/%.o: %.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(ALL_CFLAGS) $(WARNINGS) $(C_WARNINGS) $(OBJECT_FLAGS) $(simd_flags) -MMD -MP -c -o $@ $<

$(OUT)/obj/%.o: %.cc $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) $(ALL_CXXFLAGS) -Wall -Wextra -MMD -MP -c -o $@ $<

# The command sees the public header alone.
$(OUT)/obj/cli/%.o: private INCLUDES := -Iinclude
$(OUT)/obj/tests/%.o: private OBJECT_FLAGS := $(TEST_DEFINES)
$(OUT)/obj/tests/%.o: private LTO_CFLAGS :=

define layer_rule
$(call archive,$(1)): $(call objects_of,$(sources_$(1)))
	$$(call say,AR)rm -f $$@ && $(AR) qcs $$@ $$^
endef
$(foreach l,$(layers),$(eval $(call layer_rule,$(l))))

# The whole library as one object, optimised across files; benches link it with its inner names.
$(OUT)/turbidite-all.o: $(lib_objects)
	$(call say,LD)$(CC) -r -nostdlib $(if $(LTO_CFLAGS),$(MODE_CFLAGS) $(BASE_FLAGS) $(LTO_LDFLAGS) $(if $(is_clang),,-flinker-output=nolto-rel)) -o $@ $^

# What is installed shows only turb_ names, also in the static library.
$(OUT)/turbidite.o: $(OUT)/turbidite-all.o
	$(call say,OBJCOPY)$(OBJCOPY) --localize-hidden $< $@

$(OUT)/libturbidite.a: $(OUT)/turbidite.o
	$(call say,AR)rm -f $@ && $(AR) qcs $@ $<

$(OUT)/$(SONAME): $(OUT)/turbidite.o turbidite.map
	$(call say,LD)$(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,$(SONAME) -Wl,--version-script=turbidite.map $(if $(sanitized),,-Wl,-z,defs) -o $@ $< $(LIBS)

$(OUT)/libturbidite.so: $(OUT)/$(SONAME)
	$(call say,LN)ln -sf $(SONAME) $@

# Always: install may name another prefix than the build did.
$(OUT)/turbidite.pc: turbidite.pc.in FORCE
	@mkdir -p $(OUT)
	$(call say,GEN)sed -e 's|@prefix@|$(prefix)|' -e 's|@libdir@|$(libdir)|' -e 's|@includedir@|$(includedir)|' -e 's|@version@|$(VERSION)|' $< >$@

$(OUT)/turb: $(call objects_of,$(cli_sources)) $(OUT)/libturbidite.a
	$(call say,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS) $(JEMALLOC)

# Examples see what a user sees: the public header and the static library. Their own loops are optimised fully.
example_binaries := $(patsubst docs/examples/%.c,$(OUT)/examples/%,$(example_sources))
$(OUT)/obj/docs/examples/%.o: INCLUDES := -Iinclude
$(OUT)/obj/docs/examples/%.o: OBJECT_FLAGS := -O3
$(OUT)/examples/%: $(OUT)/obj/docs/examples/%.o $(OUT)/libturbidite.a
	@mkdir -p $(@D)
	$(call say,LD)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS) $(JEMALLOC)

# ---- tests ----------------------------------------------------------------------------------------------

# The folder below tests/ that a test lies in, and the other .c files there.
test_folder  = $(word 2,$(subst /, ,$(1)))
folder_shared = $(filter-out $(test_sources) $(fuzz_sources),$(wildcard tests/$(1)/*.c))

define test_rule
$(OUT)/$(1): $(OUT)/obj/$(1).o $(call objects_of,$(call folder_shared,$(call test_folder,$(1)))) $(call objects_of,$(support_sources)) $(foreach l,$(call test_layers,$(call test_folder,$(1))),$(call archive,$(l)))
	@mkdir -p $$(@D)
	$$(call say,LD)$(CC) -fno-lto $$(ALL_LDFLAGS) -o $$@ $$^ $$(LIBS) $$(JEMALLOC) $$(TEST_LIBS)
endef
$(foreach t,$(patsubst %.c,%,$(test_sources)),$(eval $(call test_rule,$(t))))

# These run the built command.
$(filter $(OUT)/tests/cli/%,$(test_binaries)): | $(OUT)/turb

$(OUT)/tests/system/thousand_iterators_test: | $(OUT)/examples/thousand_iterators

all_archives := $(foreach l,$(call upto,none),$(call archive,$(l)))

$(OUT)/tests/fuzz/%_replay: $(OUT)/obj/tests/fuzz/%_fuzz.o $(OUT)/obj/tests/support/replay/main.o $(all_archives)
	@mkdir -p $(@D)
	$(call say,LD)$(CC) -fno-lto $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

$(OUT)/fuzz/%: $(OUT)/obj/tests/fuzz/%_fuzz.o $(all_archives)
	@mkdir -p $(@D)
	$(call say,LD)$(CC) -fsanitize=fuzzer $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

# ---- benches --------------------------------------------------------------------------------------------

# The floor's nodes stay in scalar registers: moving them to vector ones takes longer than a match.
$(OUT)/obj/bench/iterators_floor.o: private OBJECT_FLAGS := -fno-tree-slp-vectorize
bench_objects := $(call objects_of,$(bench_shared)) $(patsubst %,$(OUT)/obj/%.o,$(basename $(rival_sources)))
$(OUT)/bench/%: $(OUT)/obj/bench/%_bench.o $(bench_objects) $(OUT)/turbidite-all.o
	@mkdir -p $(@D)
	$(call say,LD)$(CXX) $(ALL_LDFLAGS) -o $@ $^ $(LIBS) $(JEMALLOC) $(if $(rival_sources),-lrocksdb -lleveldb -llmdb)

# The same benchmark without link-time optimisation; the other runs it for its rows.
$(OUT)/bench/iterators-nolto: $(OUT)/obj/bench/iterators_bench.o $(bench_objects) $(all_archives)
	@mkdir -p $(@D)
	$(call say,LD)$(CXX) -fno-lto $(ALL_LDFLAGS) -o $@ $^ $(LIBS) $(JEMALLOC) -lrocksdb -lleveldb -llmdb
$(OUT)/bench/iterators: | $(OUT)/bench/iterators-nolto

# ---- targets --------------------------------------------------------------------------------------------

.PHONY: all lib help FORCE $(MODES) tests replays benches examples fuzzers deps check test test-all soak lint format \
        style exports bench demo install uninstall clean
.SECONDARY:

products := $(archives) $(OUT)/libturbidite.a $(OUT)/$(SONAME) $(OUT)/libturbidite.so $(OUT)/turbidite.pc \
            $(if $(cli_sources),$(OUT)/turb)

all: $(products) ## the library and the command in MODE (release unless given)
lib: $(archives)
tests: $(test_binaries) $(replay_binaries)
thread-tests: $(thread_tests)
replays: $(replay_binaries)
benches: $(bench_binaries)
examples: $(example_binaries)
fuzzers: $(fuzz_binaries)

# A build uses all CPUs unless -j says otherwise.
again = +@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

debug: ## build with assertions and without optimisation
	$(again) MODE=debug all
release: ## build optimised, with LTO
	$(again) MODE=release all
asan: ## build and run the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(again) MODE=asan tests
	@scripts/run-tests asan short $(BUILD)
ubsan: ## the same under UndefinedBehaviorSanitizer alone
	$(again) MODE=ubsan tests
	@scripts/run-tests ubsan short $(BUILD)
tsan: ## the threaded tests under ThreadSanitizer
	$(again) MODE=tsan thread-tests
	@scripts/run-tests tsan short $(BUILD)
coverage: ## run the tests and write $(BUILD)/coverage/report
	@scripts/deps build test coverage
	$(again) MODE=coverage tests
	@scripts/run-tests coverage short $(BUILD)
	@scripts/coverage $(BUILD)
fuzz: ## run every fuzz target for FUZZ_SECONDS (60)
	@scripts/deps build fuzz
	$(again) MODE=fuzz fuzzers
	@scripts/run-fuzz $(BUILD)

deps: ## install the Debian packages that building and testing lack
	@scripts/deps build test

check: ## the fast share of the tests, under 2 minutes
	$(again) MODE=release all tests
	@scripts/run-tests release fast $(BUILD)

# make starts anew after deps, so that nothing is found out about a compiler before it is there.
test: deps ## everything: release, asan with ubsan, tsan, exports, headers
	$(again) test-all

test-all:
	@scripts/run-tests --begin $(BUILD)
	$(again) MODE=release all tests
	@scripts/check-exports $(BUILD)/release/$(SONAME) $(header)
	@scripts/check-header $(header)
	@scripts/check-fast-path
	@scripts/check-install $(BUILD)
	@scripts/run-tests release full $(BUILD)
	$(again) MODE=asan tests
	@scripts/run-tests asan short $(BUILD)
	$(again) MODE=tsan thread-tests
	@scripts/run-tests tsan short $(BUILD)
	@scripts/run-tests --end $(BUILD)

soak: ## the long random tests, TURB_SOAK times (20) their full share
	$(again) MODE=release tests
	@scripts/run-tests release soak $(BUILD)

lint: ## style script, clang-tidy, cppcheck
	@scripts/deps lint
	@scripts/style
	@scripts/lint $(BUILD) '$(DEFINES) $(INCLUDES)'
style: ## the style script alone
	@scripts/style
format: ## clang-format over all sources
	@scripts/deps lint
	@git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cc' | xargs -r clang-format -i
exports: $(OUT)/$(SONAME)
	@scripts/check-exports $(OUT)/$(SONAME) $(header)

# make bench-NAME runs one; QUICK=1 makes it short. Figures go to $(BUILD)/bench/NAME.jsonl.
bench: ## all benchmarks against their rivals (bench-NAME for one, QUICK=1 for a short run)
	@scripts/deps build bench
	$(again) MODE=release benches
	@for name in $(bench_names); do scripts/run-bench $(BUILD) $$name || exit 1; done
bench-%:
	@scripts/deps build bench
	$(again) MODE=release $(BUILD)/release/bench/$*
	@scripts/run-bench $(BUILD) $*

demo: ## import Fashion-MNIST, search it, check the answers
	@scripts/deps build demo
	$(again) MODE=release all examples
	@BUILD=$(BUILD) scripts/demo

# The one list of what is installed: mode:source:destination, and the links link:target.
installed := 644:$(header):$(includedir)/turbidite/turbidite.h \
             644:$(OUT)/libturbidite.a:$(libdir)/libturbidite.a \
             755:$(OUT)/$(SONAME):$(libdir)/$(SONAME) \
             644:$(OUT)/turbidite.pc:$(libdir)/pkgconfig/turbidite.pc \
             $(if $(cli_sources),755:$(OUT)/turb:$(bindir)/turb) \
             $(foreach m,$(man_pages),644:$(m):$(mandir)/man$(patsubst .%,%,$(suffix $(m)))/$(notdir $(m)))
installed_links := $(libdir)/libturbidite.so:$(SONAME)

install: $(products) ## into DESTDIR and prefix (/usr/local)
	@for entry in $(installed); do \
	  mode=$${entry%%:*}; rest=$${entry#*:}; from=$${rest%%:*}; to=$(DESTDIR)$${rest#*:}; \
	  echo "  INSTALL $$to"; install -D -m $$mode $$from $$to || exit 1; done
	@for entry in $(installed_links); do ln -sf $${entry#*:} $(DESTDIR)$${entry%%:*} || exit 1; done

uninstall: ## removes what install put there
	@for entry in $(installed); do rest=$${entry#*:}; rm -f $(DESTDIR)$${rest#*:}; done
	@for entry in $(installed_links); do rm -f $(DESTDIR)$${entry%%:*}; done
	@rmdir $(DESTDIR)$(includedir)/turbidite 2>/dev/null || true

clean: ## removes $(BUILD)
	rm -rf $(BUILD)

help: ## this list
	@echo 'Targets:'; sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'
	@echo 'Variables: MODE=$(MODE) ($(MODES)), BUILD=$(BUILD), CC=$(CC), CFLAGS, LDFLAGS, V=1, DESTDIR, prefix=$(prefix)'

-include $(shell find $(OUT)/obj -name '*.d' 2>/dev/null)
