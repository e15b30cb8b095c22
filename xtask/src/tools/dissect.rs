//! tshark reads what nonic sends on iWARP, and has nothing to complain about.
//!
//! What programs say between two namespaces is captured and dissected: every message they are known to send must be there, every
//! CRC good, nothing malformed. Two of tshark's dissectors are switched off that take messages of any program for a protocol they
//! know. It does not know the messages with immediate data (RFC 7306), so no program here sends them.

use super::case::{Case, Place, Shape, Wire};
use super::{cm_cases, connected};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testbed::namespace::VethPair;
use testbed::owned::OwnedChild;
use testbed::packages::install;
use testbed::run_as::RunAs;
use testbed::side_by_side;
use testbed::temporary::unique_path;
use testbed::topology::{self, Topology};

/// Longer than tcpdump takes to start, and to write what it has captured, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The last that is captured: asked to end, tcpdump drops what it has not read yet.
const LAST_WORDS: &str = "nonic: all was said";

/// How tshark calls the messages, by program.
const MESSAGES: [(&str, &[&str]); 5] = [
    ("rping", &["Read Request", "Read Response", "Write", "Send"]),
    ("ib_send_bw", &["Send", "Write"]),
    ("ib_write_bw", &["Write"]),
    ("ib_read_bw", &["Read Request", "Read Response"]),
    ("ib_atomic_bw", &["Atomic Request", "Atomic Response"]),
];

/// What shows in tshark's output that something is wrong.
const COMPLAINTS: [&str; 4] = ["Malformed", "Bad CRC32", "Expert Info (Error", "Bad length"];

/// Runs the programs; what there was to complain about.
pub(super) fn run(veth_pairs: &[VethPair], nonic: &Path) -> Result<Vec<String>> {
    install(&[("/usr/bin/tshark", "tshark"), ("/usr/bin/tcpdump", "tcpdump")])?;
    let mut jobs = Vec::new();
    for (program, messages) in MESSAGES {
        // perftest knows IPv4 alone.
        let places: &[Place] = match program {
            "rping" => &[Place::TwoHosts, Place::TwoHostsIpv6],
            _ => &[Place::TwoHosts],
        };
        jobs.extend(places.iter().map(|place| (program, messages, *place)));
    }
    let run = |veth_pair: &VethPair, (program, messages, place): &(&str, &[&str], Place)| {
        let topology = &topology::at(veth_pair, Wire::Iwarp, *place);
        let name = format!("tshark, {program} ({})", topology.name);
        match one(topology, veth_pair, nonic, &case(program), messages) {
            Ok(frames) => Ok(format!("{name}: {frames} FPDUs, all good")),
            Err(error) => Err(format!("{name}: {error:#}")),
        }
    };
    let outcomes = side_by_side::in_order(veth_pairs, &jobs, run, |_, outcome| {
        if let Ok(line) = outcome {
            println!("{line}");
        }
    });
    Ok(outcomes.into_iter().filter_map(Result::err).collect())
}

fn case(program: &str) -> Case {
    let mut all = cm_cases::perftest();
    all.push(cm_cases::rping_verified("-V -C 10 -S 4000"));
    let found = all.into_iter().find(|case| case.program == program);
    found.expect("there is such a program")
}

/// Runs one program; how many FPDUs there were.
fn one(
    topology: &Topology<'_>,
    veth_pair: &VethPair,
    nonic: &Path,
    case: &Case,
    messages: &[&str],
) -> Result<usize> {
    let Shape::Connected(connected) = &case.shape else {
        bail!("it does not connect");
    };
    let mut capture = Capture::start(veth_pair)?;
    connected::run(topology, nonic, connected)?;
    let text = capture.dissect()?;
    check(&text, messages).inspect_err(|_| capture.keep = true)?;
    Ok(text.matches("Good CRC32").count())
}

/// Whether all is there and nothing is wrong.
fn check(text: &str, messages: &[&str]) -> Result<()> {
    for complaint in COMPLAINTS {
        let line = text.lines().find(|line| line.contains(complaint));
        ensure!(line.is_none(), "tshark says: {}", line.unwrap_or_default().trim());
    }
    for message in messages {
        ensure!(
            text.lines()
                .any(|line| line.contains("OpCode:") && line.contains(message)),
            "tshark sees no {message}"
        );
    }
    Ok(())
}

/// Writes down what passes between the namespaces.
struct Capture<'a> {
    tcpdump: OwnedChild,
    /// Where it runs.
    here: RunAs<'a>,
    file: PathBuf,
    /// Whether it stays, for a person to look at.
    keep: bool,
}

impl<'a> Capture<'a> {
    fn start(veth_pair: &'a VethPair) -> Result<Self> {
        let file = unique_path("dissect").with_extension("pcap");
        let _ = std::fs::remove_file(&file);
        let here = RunAs {
            namespace: Some(&veth_pair.left),
            ..RunAs::default()
        };
        let tcpdump = here
            .command(Path::new("tcpdump"))
            .args([
                "-i",
                "veth",
                "-B",
                "65536",
                "-U",
                "--immediate-mode",
                "-Z",
                "root",
                "-w",
            ])
            .arg(&file)
            .arg("tcp or udp port 9")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start tcpdump")?;
        let capture = Self {
            tcpdump: tcpdump.into(),
            here,
            file,
            keep: false,
        };
        // The file's own header is written when the interface is open.
        capture
            .wait_until(|file| file.len() >= 24)
            .context("it does not start")?;
        Ok(capture)
    }

    /// Waits until tcpdump has written something.
    fn wait_until(&self, is_there: impl Fn(&[u8]) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !std::fs::read(&self.file).is_ok_and(|file| is_there(&file)) {
            ensure!(
                Instant::now() < deadline,
                "tcpdump has not written it in {PATIENCE:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until everything that has passed is written: it is when what passes last is.
    fn finish(&self) -> Result<()> {
        let say = format!("printf '{LAST_WORDS}' > /dev/udp/10.77.0.2/9");
        let said = self.here.command(Path::new("bash")).args(["-c", &say]).status()?;
        ensure!(said.success(), "bash cannot send a datagram: {said}");
        self.wait_until(|file| {
            let mut places = file.windows(LAST_WORDS.len());
            places.any(|place| place == LAST_WORDS.as_bytes())
        })
    }

    /// What tshark makes of it.
    fn dissect(&mut self) -> Result<String> {
        self.finish()?;
        let process = self.tcpdump.id().to_string();
        Command::new("kill")
            .args(["-INT", &process])
            .status()
            .context("cannot start kill")?;
        let ended = self.tcpdump.wait_until(Instant::now() + PATIENCE)?;
        ensure!(ended.is_some(), "tcpdump does not end when it is asked to");
        let output = Command::new("tshark")
            .args([
                "--disable-heuristic",
                "rpcrdma_iwarp",
                "--disable-heuristic",
                "smb_direct_iwarp",
            ])
            // Segments may overtake each other between two processors. Without this, what follows one that was overtaken is
            // taken for the beginning of an FPDU.
            .args(["-o", "tcp.reassemble_out_of_order:TRUE"])
            .args(["-O", "iwarp_mpa,iwarp_ddp_rdmap", "-r"])
            .arg(&self.file)
            .output()
            .context("cannot start tshark")?;
        ensure!(
            output.status.success(),
            "tshark: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        self.tcpdump.kill();
        if self.keep {
            eprintln!("the capture is kept: {}", self.file.display());
        } else {
            let _ = std::fs::remove_file(&self.file);
        }
    }
}
