//! Project chores: `cargo xtask <chore>`.
//!
//! It is built as tests are, so that both share what is compiled, but optimised (`Cargo.toml`), since it also measures.

mod bench;
mod book;
mod c_program;
#[cfg(test)]
mod circles;
mod conformance;
mod debian;
mod debug_symbols;
mod dist;
mod growth;
mod instructions;
mod interop;
mod lab;
mod link;
mod loom;
mod messages;
mod mutants;
mod net;
mod nvme;
mod package;
mod programs;
mod quick;
mod ranks;
mod soak;
mod suites;
mod symbols;
#[cfg(test)]
mod test_files;
mod tools;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Project chores")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Measure nonic beside the bare machine and those one would use instead, taking turns.
    Bench(bench::Options),
    /// Build the book, follow the links of all pages, run the commands of the book and the README, and make their pictures.
    Book(book::Options),
    /// Run rdma-core's own tests on our library.
    Conformance(conformance::Options),
    /// Build what is installed: the command and the libraries programs run on.
    Dist(dist::Options),
    /// Compare what one more connection, memory key, queue pair or listener costs beside few others and beside many.
    Growth(growth::Options),
    /// Install it from this checkout: the command, the libraries, manual pages and completions.
    Install(package::InstallOptions),
    /// Count the instructions of posting and polling on one host, and compare them with those written down.
    Instructions(instructions::Options),
    /// Run programs between nonic and Linux's own soft-RDMA driver.
    Interop(interop::Options),
    /// Boot guests that run Linux's own soft-RDMA driver, and run a command there.
    Lab(lab::Options),
    /// Explore the interleavings of what threads share.
    Loom,
    /// Measure messages and streams beside raw verbs and TCP.
    Messages(messages::Options),
    /// Break the NIC on purpose and expect the simulator to notice.
    Mutants(mutants::Options),
    /// Hosts with a faulty wire between them: try programs there, or measure nonic beside TCP.
    Net(net::Options),
    /// Have Linux's own NVMe host use a disk of `nonic nvme-target`.
    Nvme(nvme::Options),
    /// Make what is released: a tarball, a Debian package and a Python wheel.
    Package(package::Options),
    /// Run UCX, libfabric, MPI and what else is built upon verbs on our libraries.
    Programs(programs::Options),
    /// Judge what changed, in a few minutes: format, clippy, tests of what it touches, simulated fabrics.
    Quick(quick::Options),
    /// Measure collectives of MPI with as many ranks as processors and with more.
    Ranks(ranks::Options),
    /// Do one thing for a long time and count what fails.
    Soak(soak::Options),
    /// Run perftest and rdma-core's own tests as Debian 12, 13 and testing ship them.
    Suites(suites::Options),
    /// List the symbols of rdma-core's libraries, as Debian 12, 13 and testing ship them.
    Symbols(symbols::Options),
    /// Run rdma-core's examples, perftest and qperf on our library.
    Tools(tools::Options),
    /// One side of a loop that `bench` measures with nothing of ours in it, started by it.
    #[command(hide = true)]
    BareLoop(bare_loops::Side),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().chore {
        Chore::Book(options) => book::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::Conformance(options) => conformance::run(&options),
        Chore::Dist(options) => dist::run(&options),
        Chore::Growth(options) => growth::run(&options),
        Chore::Install(options) => package::install(&options),
        Chore::Instructions(options) => instructions::run(&options),
        Chore::Interop(options) => interop::run(&options),
        Chore::Lab(options) => lab::run(&options),
        Chore::Loom => loom::run(),
        Chore::Messages(options) => messages::run(&options),
        Chore::Mutants(options) => mutants::run(&options),
        Chore::Net(options) => net::run(&options),
        Chore::Nvme(options) => nvme::run(&options),
        Chore::Package(options) => package::run(&options),
        Chore::Programs(options) => programs::run(&options),
        Chore::Quick(options) => quick::run(&options),
        Chore::Ranks(options) => ranks::run(&options),
        Chore::Soak(options) => soak::run(&options),
        Chore::Suites(options) => suites::run(&options),
        Chore::Symbols(options) => symbols::run(&options),
        Chore::Tools(options) => tools::run(&options),
        Chore::BareLoop(side) => bare_loops::run(&side),
    }
}
