//! QEMU: live migration by RDMA of a guest that counts, which must go on with the next number.
//!
//! The guest is a boot sector of ours. At every tick of its clock it writes its count to a word in each of 96 pages, after
//! having looked that each still has what it wrote last, and prints the count on its serial line.

use super::bench::Bench;
use super::case::{Case, Place, Program, Shape};
use crate::tools::pair::fresh_port;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use testbed::process::Process;
use testbed::temporary::Scratch;

const QEMU: Program = Program {
    name: "QEMU",
    version: "7.2",
    packages: &[("/usr/bin/qemu-system-x86_64", "qemu-system-x86")],
    wheels: &[],
};

/// Longer than a guest takes to start or to move, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

/// Everything.
pub(super) fn all() -> Vec<Case> {
    let case = |line: &str, script, moved_bytes| {
        Case::new(&QEMU, line, Shape::Scripted(script), moved_bytes).at(&Place::IPV4)
    };
    vec![
        case(
            "qemu-system-x86_64 -incoming rdma:…, and migrate to it, of a guest that counts",
            |bench| migrate(bench, false),
            1 << 20,
        )
        .core(&[Place::TwoHosts]),
        // All of the guest's 64 MiB are registered and moved, also what is empty.
        case(
            "the same with the capability rdma-pin-all",
            |bench| migrate(bench, true),
            64 << 20,
        ),
    ]
}

fn migrate(bench: &Bench<'_>, pin_all: bool) -> Result<()> {
    let scratch = Scratch::new()?;
    let image = scratch.write("guest", guest())?;
    let place = format!("rdma:{}:{}", bench.topology.address, fresh_port());
    let line = |name: &str| {
        let file = |ending: &str| scratch.path(&format!("{name}.{ending}")).display().to_string();
        format!(
            "qemu-system-x86_64 -machine pc,accel=tcg -m 64 -nodefaults -display none \
             -drive if=floppy,format=raw,readonly=on,file={} -serial file:{} -qmp unix:{},server=on,wait=off",
            image.display(),
            file("serial"),
            file("qmp")
        )
    };
    let destination = format!("{} -incoming {place}", line("destination"));
    let destination = Process::start(&mut bench.server(&destination))?;
    let source = Process::start(&mut bench.client(&line("source")))?;
    match moved(&scratch, &place, pin_all) {
        Ok(()) => {
            source.finish().context("the source")?;
            destination.finish().context("the destination")?;
            Ok(())
        }
        Err(error) => bail!(
            "{error:#}; the source: {}; the destination: {}",
            source.stop(),
            destination.stop()
        ),
    }
}

/// Both guests' lines, before and after.
fn moved(scratch: &Scratch, place: &str, pin_all: bool) -> Result<()> {
    let (source, destination) = (scratch.path("source.serial"), scratch.path("destination.serial"));
    counts(&source, 10).context("the guest does not start")?;
    let mut there = Monitor::connect(&scratch.path("destination.qmp"))?;
    let mut here = Monitor::connect(&scratch.path("source.qmp"))?;
    if pin_all {
        let wanted = json!({"capabilities": [{"capability": "rdma-pin-all", "state": true}]});
        here.execute("migrate-set-capabilities", &wanted)?;
        there.execute("migrate-set-capabilities", &wanted)?;
    }
    here.execute("migrate", &json!({ "uri": place }))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let state = here.execute("query-migrate", &json!({}))?;
        match state["status"].as_str() {
            Some("completed") => break,
            Some("failed" | "cancelled") => bail!("the migration failed: {state}"),
            _ => ensure!(Instant::now() < deadline, "the migration does not end: {state}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let after = counts(&destination, 10).context("the guest does not go on")?;
    let before = counts(&source, 10)?;
    let all: Vec<u16> = before.iter().chain(&after).copied().collect();
    ensure!(
        all.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "the guest left out a number: {before:?}, then {after:?}"
    );
    here.execute("quit", &json!({}))?;
    there.execute("quit", &json!({}))?;
    Ok(())
}

/// What a guest has counted, once there are so many numbers. Memory that is not what it wrote would be `!`.
fn counts(serial: &Path, wanted: usize) -> Result<Vec<u16>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(serial).unwrap_or_default();
        ensure!(!text.contains('!'), "the guest does not find what it has written");
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let numbers: Option<Vec<u16>> = whole.lines().map(number).collect();
        let numbers = numbers.with_context(|| format!("no numbers: {text}"))?;
        if numbers.len() >= wanted {
            return Ok(numbers);
        }
        ensure!(Instant::now() < deadline, "it counts no further than {numbers:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Four digits from `a` to `p`.
fn number(line: &str) -> Option<u16> {
    let digit = |letter: u8| matches!(letter, b'a'..=b'p').then(|| u16::from(letter - b'a'));
    let digits: Vec<u16> = line.bytes().map(digit).collect::<Option<_>>()?;
    (digits.len() == 4).then(|| digits.iter().fold(0, |number, digit| number << 4 | digit))
}

/// A connection to QEMU's control socket.
struct Monitor {
    lines: std::io::Lines<BufReader<UnixStream>>,
    socket: UnixStream,
}

impl Monitor {
    fn connect(path: &Path) -> Result<Self> {
        let socket = UnixStream::connect(path).context("cannot reach QEMU's monitor")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let lines = BufReader::new(socket.try_clone()?).lines();
        let mut monitor = Self { lines, socket };
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({"execute": command, "arguments": arguments});
        // In one piece: QEMU obeys at the last brace, and after `quit` it does not read what follows.
        self.socket.write_all(format!("{request}\n").as_bytes())?;
        // Greetings and events come in between.
        for line in &mut self.lines {
            let answer: Value = serde_json::from_str(&line?)?;
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
            ensure!(answer.get("error").is_none(), "{command}: {answer}");
        }
        bail!("{command}: QEMU has ended")
    }
}

/// The boot sector.
fn guest() -> Vec<u8> {
    #[rustfmt::skip]
    let code = [
        0x31, 0xc0,                         // 00       xor ax, ax
        0x8e, 0xd0,                         // 02       mov ss, ax
        0xbc, 0x00, 0x7c,                   // 04       mov sp, 0x7c00
        0x8e, 0xd8,                         // 07       mov ds, ax
        0x31, 0xdb,                         // 09       xor bx, bx          ; the count
        0xfb,                               // 0b       sti
        0xf4,                               // 0c tick: hlt                 ; until the clock's next interrupt
        0xb8, 0x00, 0x20,                   // 0d       mov ax, 0x2000      ; the segment of the first page
        0x8e, 0xc0,                         // 10 page: mov es, ax
        0x26, 0x8b, 0x16, 0x00, 0x00,       // 12       mov dx, es:[0]
        0x39, 0xda,                         // 17       cmp dx, bx
        0x74, 0x0b,                         // 19       je same
        0x85, 0xdb,                         // 1b       test bx, bx         ; the first time it has written nothing yet
        0x74, 0x07,                         // 1d       jz same
        0xb0, b'!',                         // 1f       mov al, '!'
        0xe8, 0x2d, 0x00,                   // 21       call put
        0x8c, 0xc0,                         // 24       mov ax, es
        0x8d, 0x4f, 0x01,                   // 26 same: lea cx, [bx + 1]
        0x26, 0x89, 0x0e, 0x00, 0x00,       // 29       mov es:[0], cx
        0x05, 0x00, 0x01,                   // 2e       add ax, 0x100       ; a page has so many paragraphs
        0x3d, 0x00, 0x80,                   // 31       cmp ax, 0x8000
        0x72, 0xda,                         // 34       jb page
        0x43,                               // 36       inc bx
        0xb9, 0x04, 0x00,                   // 37       mov cx, 4
        0x89, 0xde,                         // 3a       mov si, bx
        0xc1, 0xc6, 0x04,                   // 3c digit: rol si, 4          ; the highest first
        0x89, 0xf0,                         // 3f       mov ax, si
        0x24, 0x0f,                         // 41       and al, 15
        0x04, b'a',                         // 43       add al, 'a'
        0xe8, 0x09, 0x00,                   // 45       call put
        0xe2, 0xf2,                         // 48       loop digit
        0xb0, b'\n',                        // 4a       mov al, '\n'
        0xe8, 0x02, 0x00,                   // 4c       call put
        0xeb, 0xbb,                         // 4f       jmp tick
        0x50,                               // 51 put:  push ax
        0xba, 0xfd, 0x03,                   // 52       mov dx, 0x3fd       ; the serial line's state
        0xec,                               // 55 wait: in al, dx
        0xa8, 0x20,                         // 56       test al, 0x20
        0x74, 0xfb,                         // 58       jz wait
        0x58,                               // 5a       pop ax
        0xba, 0xf8, 0x03,                   // 5b       mov dx, 0x3f8
        0xee,                               // 5e       out dx, al
        0xc3,                               // 5f       ret
    ];
    let mut sector = code.to_vec();
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    sector
}
