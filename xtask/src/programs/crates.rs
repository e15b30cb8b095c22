//! The Rust crates that speak verbs: their examples, and those of their tests that need a device.
//!
//! They are fetched from the registry by name and version, and built with the versions that they were published with. None of
//! their code is here.

use super::bench::Bench;
use super::case::{Case, Place, Program, Shape};
use super::pairs::pair;
use super::sources::Sources;
use crate::tools::pair::fresh_port;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use testbed::process::{Process, Ready};

/// What their build scripts need: those make their bindings from headers.
const BUILD_TOOLS: &[(&str, &str)] = &[
    ("/usr/bin/cmake", "cmake"),
    ("/usr/lib/llvm-14/lib/libclang.so.1", "libclang-14-dev"),
    ("/usr/include/libnl3/netlink/netlink.h", "libnl-3-dev"),
    ("/usr/include/libnl3/netlink/route/link.h", "libnl-route-3-dev"),
    ("/usr/include/infiniband/verbs.h", "libibverbs-dev"),
    ("/usr/include/rdma/rdma_cma.h", "librdmacm-dev"),
];

const SIDEWAY: Program = Program {
    name: "sideway",
    version: "0.4.3",
    packages: BUILD_TOOLS,
    wheels: &[],
};

const IBVERBS: Program = Program {
    name: "ibverbs",
    version: "0.9.2",
    packages: BUILD_TOOLS,
    wheels: &[],
};

const MUMMY: Program = Program {
    name: "rdma-mummy-sys",
    version: "0.2.6",
    packages: BUILD_TOOLS,
    wheels: &[],
};

const ASYNC_RDMA: Program = Program {
    name: "async-rdma",
    version: "0.5.0",
    packages: BUILD_TOOLS,
    wheels: &[],
};

/// For tests that give what the peer does 100 ms, which several at a time on a busy machine do not get.
const ONE_BY_ONE: &str = "--test-threads=1";

/// Everything.
pub(super) fn all() -> Vec<Case> {
    let mut cases = sideway();
    cases.push(case(&IBVERBS, "cargo run --example loopback", 44, loopback));
    cases.push(
        case(
            &MUMMY,
            "cargo run --example server, and client",
            32,
            server_and_client,
        )
        .at(&Place::IPV4),
    );
    cases.extend(async_rdma());
    cases
}

fn async_rdma() -> Vec<Case> {
    vec![
        case(
            &ASYNC_RDMA,
            "cargo test --test atomic --test device --test loop --test mr_slice --test rmr_access",
            1000,
            |bench| {
                let names = ["atomic", "device", "loop", "mr_slice", "rmr_access"];
                tests(bench, &ASYNC_RDMA, &names, ONE_BY_ONE)
            },
        ),
        case(&ASYNC_RDMA, "cargo test --test imm send_with_imm", 100, |bench| {
            tests(bench, &ASYNC_RDMA, &["imm"], &format!("{ONE_BY_ONE} send_with_imm"))
        })
        .except(
            &[Place::OneHost],
            "it takes a completion for one with immediate data only if its flags are exactly 3; its documentation says that \
             this is for Soft-RoCE and may be 2 elsewhere (set_imm_flag_in_wc), and nonic sets IBV_WC_WITH_IMM alone, which is 2",
        ),
    ]
}

fn sideway() -> Vec<Case> {
    let example = |name: &str, moved_bytes, script| {
        let line = format!("cargo run --example {name}");
        case(&SIDEWAY, &line, moved_bytes, script)
    };
    vec![
        // Which devices there are, and what they say of themselves.
        case(
            &SIDEWAY,
            "cargo test --lib -- --skip test_bind_on_the_same_port",
            0,
            |bench| tests(bench, &SIDEWAY, &["sideway"], "--skip test_bind_on_the_same_port"),
        ),
        case(
            &SIDEWAY,
            "cargo test --lib test_bind_on_the_same_port",
            0,
            |bench| tests(bench, &SIDEWAY, &["sideway"], "test_bind_on_the_same_port"),
        )
        .except(
            &[Place::OneHost],
            "it binds to no address in particular twice, and expects EADDRNOTAVAIL \
             (src/rdmacm/communication_manager.rs); nonic says EADDRINUSE whenever a port is taken",
        ),
        case(
            &SIDEWAY,
            "cargo test --test test_atomic --test test_cq --test test_mr_and_cq --test test_post_send --test test_qp",
            500,
            |bench| {
                let names = [
                    "test_atomic",
                    "test_cq",
                    "test_mr_and_cq",
                    "test_post_send",
                    "test_qp",
                ];
                tests(bench, &SIDEWAY, &names, "")
            },
        ),
        example("show_gids", 0, |bench| looks(bench, "show_gids")),
        example("ibv_devinfo", 0, |bench| looks(bench, "ibv_devinfo")),
        example("rc_pingpong", 2 << 20, |bench| ping_pong(bench, "rc_pingpong")).at(&Place::IPV4),
        example("rc_pingpong_split", 2 << 20, |bench| {
            ping_pong(bench, "rc_pingpong_split")
        })
        .at(&Place::IPV4),
        example("cmtime", 1000, connection_times).at(&Place::IPV4),
    ]
}

fn case(
    program: &'static Program,
    line: &str,
    moved_bytes: u64,
    script: fn(&Bench<'_>) -> Result<()>,
) -> Case {
    Case::new(program, line, Shape::Scripted(script), moved_bytes).at(&[Place::OneHost])
}

/// Runs tests by the names of their binaries, and those of a binary as `cargo test` does: several at a time, unless the options
/// say otherwise.
fn tests(bench: &Bench<'_>, program: &Program, names: &[&str], options: &str) -> Result<()> {
    let sources = Sources::build(program)?;
    for name in names {
        let file = sources.test(name)?;
        let line = format!("RUST_BACKTRACE=0 {} {options}", file.display());
        let printed = Process::start(&mut bench.client(&line))?.finish();
        let printed = printed.with_context(|| (*name).to_owned())?;
        ensure!(printed.contains("test result: ok"), "{name}: {printed}");
    }
    Ok(())
}

/// An example that looks at the devices and ends.
fn looks(bench: &Bench<'_>, name: &str) -> Result<()> {
    let file = Sources::build(&SIDEWAY)?.example(name)?;
    let printed = Process::start(&mut bench.client(&file.display().to_string()))?.finish()?;
    let device = bench.topology.device;
    ensure!(printed.contains(device), "it does not name {device}: {printed}");
    Ok(())
}

fn ping_pong(bench: &Bench<'_>, name: &str) -> Result<()> {
    let file = Sources::build(&SIDEWAY)?.example(name)?;
    let port = fresh_port();
    let gid = bench.topology.gid_index;
    let line = format!("{} -d {{device}} -g {gid} -p {port}", file.display());
    let printed = pair(
        bench,
        bench.server(&line),
        bench.client(&format!("{line} {{to}}")),
        port,
    )?;
    ensure!(printed.contains("1000 iters in"), "the client says: {printed}");
    Ok(())
}

/// How long connections take. It prints a table of the steps.
fn connection_times(bench: &Bench<'_>) -> Result<()> {
    let file = Sources::build(&SIDEWAY)?.example("cmtime")?;
    let printed = connected(bench, &file, "-b {to} -p {port}", "-b {from} -s {to} -p {port}")?;
    ensure!(printed.contains("Disconnect"), "the client says: {printed}");
    Ok(())
}

fn server_and_client(bench: &Bench<'_>) -> Result<()> {
    /// The server's choice.
    const PORT: u16 = 7471;
    let sources = Sources::build(&MUMMY)?;
    let (server, client) = (sources.example("server")?, sources.example("client")?);
    let server = server.display().to_string();
    let client = format!("{} {{to}} {PORT}", client.display());
    connected_by(bench, &server, &client, PORT)?;
    Ok(())
}

fn loopback(bench: &Bench<'_>) -> Result<()> {
    let file = Sources::build(&IBVERBS)?.example("loopback")?;
    let printed = Process::start(&mut bench.client(&file.display().to_string()))?.finish()?;
    let both = printed.contains("sent") && printed.contains("received");
    ensure!(both, "it says: {printed}");
    Ok(())
}

/// One program as server and as client of the connection manager; what the client printed.
fn connected(bench: &Bench<'_>, program: &Path, server: &str, client: &str) -> Result<String> {
    let port = fresh_port();
    let line = |options: &str| {
        let options = options.replace("{port}", &port.to_string());
        format!("{} {options}", program.display())
    };
    connected_by(bench, &line(server), &line(client), port)
}

fn connected_by(bench: &Bench<'_>, server: &str, client: &str, port: u16) -> Result<String> {
    let server = Process::start(&mut bench.server(server))?;
    if let Err(error) = server.wait_until(Ready::Service(port), &bench.topology) {
        bail!("the server: {error:#}: {}", server.stop());
    }
    match Process::start(&mut bench.client(client))?.finish() {
        Err(error) => bail!("the client: {error:#}; the server: {}", server.stop()),
        Ok(printed) => {
            server.finish().context("the server")?;
            Ok(printed)
        }
    }
}
