# The few commands a newcomer types; each is one line into cargo or xtask. `make help` lists them.
# On Debian as root, bootstrap installs what is missing; elsewhere it says what to install.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin

.PHONY: help bootstrap demo test reproduce campaign bench build doctor

help: ## list these commands
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

bootstrap: ## install the tools that are missing (Debian, as root)
	@sh tools/bootstrap.sh

demo: bootstrap ## real VMs on a real kernel under both schedulers, with a table at the end
	@cargo xtask demo

test: ## everything that CI runs: format, tidy, clippy, tests, live build, docs
	@sh tools/bootstrap.sh browser
	@cargo xtask ci

reproduce: bootstrap ## the documents' experiments beside the published figures; ends with 6 while points are missed (29 of 126)
	@cargo run --quiet --release -p tandem -- reproduce --work --seeds 4 -o target/reproduce.html --json target/reproduce.json

campaign: bootstrap ## hours of work, resumable: all drills, all scenarios in the lab, 9,000 trees, 20,000 hosts
	@cargo xtask campaign --report

bench: bootstrap ## speed of the simulator, and of the hot path beside the kernel's own scheduler
	@cargo bench -p sim
	@cargo test --release -q -p sim --test hot_path -- --nocapture
	@cargo xtask lab-drill latency

build: bootstrap ## the tandem binary with the live host, as target/release/tandem
	@cargo build --release -p tandem --features live

doctor: build ## whether this machine's kernel can run the scheduler, and what to do if not
	@cargo run --quiet --release -p tandem --features live -- doctor
