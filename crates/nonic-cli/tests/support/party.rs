//! A process with a device that does what it is told: this very test program started again in a network namespace.
//!
//! [`Party`] is the handle of the test that started it, [`run`] what the process does. Commands are lines of its
//! standard input; answers are lines of its standard output that begin with `> `. A flood goes on beside other commands
//! and says how it ended when it does.

use crate::confinement::Confinement;
use crate::lane_attacks::Attack;
use crate::support::{DEADLINE, Process};
use nonic::{
    Access, AckTimeout, CompletionQueue, ConnectOptions, Device, Domain, Endpoint, Exposed, Lease, Prepared,
    QueuePair, Rc,
};
use nonic::{RemoteSlice, SendQueue};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use testbed::namespace::Namespace;

/// Says to this program that it is a party.
const PARTY: &str = "NONIC_TEST_PARTY";
/// How long the process waits for anything.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));
/// What a flood writes, and what is where memory was taken back.
const FLOOD: u8 = 0x3c;
const OURS: u8 = 0xa5;
/// Requests of a flood under way at a time, and their lengths.
const DEPTH: usize = 4;
const LENGTHS: [usize; 5] = [64, 262_144, 4096, 65_536, 262_144];

#[test]
#[ignore = "a child process of the other tests"]
fn party() {
    if std::env::var_os(PARTY).is_some() {
        run();
    }
}

/// Names the device that a process opens, if it is not that of loopback.
pub(crate) const DEVICE: &str = "NONIC_TEST_DEVICE";

/// The handle of a process.
pub(crate) struct Party {
    pub(crate) process: Process,
    stdin: ChildStdin,
    said: Receiver<String>,
    /// Lines that it said and that the test has not read yet.
    unread: VecDeque<String>,
}

impl Party {
    /// Starts one in a namespace, with this in its environment, by these words before its own (`setpriv ...`).
    pub(crate) fn start(namespace: &Namespace, environment: &[(&str, &str)], wrapper: &[&str]) -> Self {
        let itself = std::env::current_exe().expect("we run");
        Self::start_program(&itself, namespace, environment, wrapper)
    }

    /// The same with a copy of this program.
    pub(crate) fn start_program(
        program: &Path,
        namespace: &Namespace,
        environment: &[(&str, &str)],
        wrapper: &[&str],
    ) -> Self {
        let words = wrapper.iter().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = namespace.command(words);
        command
            .args(["--exact", "party::party", "--ignored", "--nocapture"])
            .env(PARTY, "1")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("asked for"));
        let (sender, said) = channel();
        std::thread::spawn(move || {
            // The harness talks as well, and may have begun the line.
            let lines = stdout.lines().map_while(Result::ok);
            let words = lines.filter_map(|line| line.split_once("> ").map(|(_, words)| words.to_owned()));
            words.for_each(|words| drop(sender.send(words)));
        });
        let mut party = Party {
            stdin: child.stdin.take().expect("asked for"),
            process: Process::from(child),
            said,
            unread: VecDeque::new(),
        };
        assert_eq!(party.says("ready"), "");
        party
    }

    /// Gives it a command.
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").expect("it reads");
    }

    /// What comes after this word in what it says, now or before.
    pub(crate) fn says(&mut self, word: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        let is_it = |line: &String| line.split(' ').next() == Some(word);
        loop {
            if let Some(at) = self.unread.iter().position(is_it) {
                let line = self.unread.remove(at).expect("just found");
                return line[word.len()..].trim().to_owned();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.said.recv_timeout(left);
            self.unread
                .push_back(line.unwrap_or_else(|_| panic!("it does not say {word}: {:?}", self.unread)));
        }
    }

    /// Whether it has said something that begins with this word.
    pub(crate) fn has_said(&mut self, word: &str) -> bool {
        self.unread.extend(self.said.try_iter());
        self.unread
            .iter()
            .any(|line| line.split(' ').next() == Some(word))
    }

    /// Gives it a command; its answer, which begins with the command's first word.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.says(command.split(' ').next().expect("a word"))
    }

    /// A number that it counts.
    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        let counters = self.ask("counters");
        let found = counters
            .split(' ')
            .find_map(|pair| pair.strip_prefix(&format!("{name}=")));
        found
            .and_then(|count| count.parse().ok())
            .unwrap_or_else(|| panic!("{name}: {counters}"))
    }
}

/// Connects queue pairs of this name of two parties.
pub(crate) fn connect(left: &mut Party, right: &mut Party, name: &str) {
    let here = left.ask(&format!("prepare {name}"));
    let there = right.ask(&format!("prepare {name}"));
    assert_eq!(left.ask(&format!("connect {name} {there}")), "done");
    assert_eq!(right.ask(&format!("connect {name} {here}")), "done");
}

/// What is at a place of a message with this seed.
fn byte(seed: u64, at: usize) -> u8 {
    (seed.wrapping_mul(0x9e37_79b9) as usize).wrapping_add(at.wrapping_mul(0x85eb_ca6b) >> 7) as u8
}

fn message(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(seed, at)).collect()
}

fn say(words: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "> {words}");
    let _ = stdout.flush();
}

/// What the process has.
struct Desk {
    device: Device,
    domain: Domain,
    prepared: HashMap<String, (Prepared<Rc>, Queues)>,
    pairs: HashMap<String, (QueuePair<Rc>, Queues)>,
    shelves: HashMap<String, Exposed>,
    /// What was exposed and is ours again.
    taken_back: HashMap<String, Lease>,
}

/// Completions of what is sent, and of what is received.
#[derive(Clone)]
struct Queues {
    sent: CompletionQueue,
    received: CompletionQueue,
}

/// Executes commands until the test is gone.
pub(crate) fn run() {
    let name = std::env::var(DEVICE).unwrap_or_else(|_| "roce_lo".to_owned());
    let device = Device::open(&name).expect("the device is there");
    let mut desk = Desk {
        domain: device.domain(),
        device,
        prepared: HashMap::new(),
        pairs: HashMap::new(),
        shelves: HashMap::new(),
        taken_back: HashMap::new(),
    };
    say("ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = desk.answer(&words);
        say(&format!("{} {answer}", words[0]));
    }
}

fn parse<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("not understood: {word}"))
}

impl Desk {
    fn answer(&mut self, words: &[&str]) -> String {
        self.answer_of_memory(words)
            .or_else(|| self.answer_of_requests(words))
            .or_else(|| self.answer_of_queue_pairs(words))
            .or_else(|| self.answer_of_itself(words))
            .unwrap_or_else(|| panic!("not understood: {words:?}"))
    }

    /// Commands that expose memory and take it back.
    fn answer_of_memory(&mut self, words: &[&str]) -> Option<String> {
        let answer = match *words {
            ["expose", shelf, len] => {
                let rights = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
                let exposed = self.lease(parse(len)).expose(rights).expect("exposed");
                let remote = exposed.remote().to_string();
                self.shelves.insert(shelf.to_owned(), exposed);
                remote
            }
            ["put", shelf, len, seed] => {
                let bytes = message(parse(seed), parse(len));
                self.shelves[shelf].write_at(0, &bytes).expect("inside");
                "done".to_owned()
            }
            ["check", shelf, len, seed] => {
                let mut bytes = vec![0; parse(len)];
                self.shelves[shelf].read_at(0, &mut bytes).expect("inside");
                verdict(&bytes, parse(seed))
            }
            ["revoke", shelf, micros] => {
                std::thread::sleep(Duration::from_micros(parse(micros)));
                self.revoke(shelf)
            }
            ["still", shelf] => match is_ours(&self.taken_back[shelf]) {
                true => "clean".to_owned(),
                false => "dirty".to_owned(),
            },
            _ => return None,
        };
        Some(answer)
    }

    /// Commands that post a request and wait for it.
    fn answer_of_requests(&mut self, words: &[&str]) -> Option<String> {
        let answer = match *words {
            ["write", name, remote, len, seed] => {
                let lease = self.message(seed, len);
                self.sends(
                    name,
                    |sq| sq.write(1, lease, remote_slice(remote, len)),
                    |_| String::new(),
                )
            }
            ["read", name, remote, len, seed] => {
                let lease = self.lease(parse(len));
                let post = |sq: &mut SendQueue<Rc>| sq.read(1, lease, remote_slice(remote, len));
                self.sends(name, post, |bytes| verdict(bytes, parse(seed)))
            }
            ["add", name, remote, add] => {
                let lease = self.lease(8);
                let post =
                    |sq: &mut SendQueue<Rc>| sq.fetch_add(1, lease, remote_slice(remote, "8"), parse(add));
                self.sends(name, post, word)
            }
            ["swap", name, remote, compare, swap] => {
                let lease = self.lease(8);
                let post = |sq: &mut SendQueue<Rc>| {
                    sq.compare_swap(1, lease, remote_slice(remote, "8"), parse(compare), parse(swap))
                };
                self.sends(name, post, word)
            }
            ["send", name, len, seed] => {
                let lease = self.message(seed, len);
                self.sends(name, |sq| sq.send(1, lease), |_| String::new())
            }
            _ => return None,
        };
        Some(answer)
    }

    /// Commands that make and use queue pairs.
    fn answer_of_queue_pairs(&mut self, words: &[&str]) -> Option<String> {
        let answer = match *words {
            ["prepare", name] => self.prepare(name),
            ["connect", name, endpoint] => self.connect(name, endpoint, &ConnectOptions::default()),
            // Gives up on a silent peer after some ten milliseconds.
            ["connect", name, endpoint, "brisk"] => {
                let options = ConnectOptions {
                    timeout: AckTimeout::at_least(Duration::from_millis(8)),
                    retries: 1,
                    ..ConnectOptions::default()
                };
                self.connect(name, endpoint, &options)
            }
            ["drop", name] => {
                self.pairs.remove(name);
                self.prepared.remove(name);
                "done".to_owned()
            }
            ["recv", name, len] => {
                let lease = self.lease(parse(len));
                let (pair, _) = self.pairs.get_mut(name).expect("it is connected");
                pair.rq.recv(2, lease).expect("posted");
                "done".to_owned()
            }
            ["received", name, seed] => {
                let (_, queues) = &self.pairs[name];
                let done = queues
                    .received
                    .wait(PATIENCE)
                    .expect("no overflow")
                    .expect("in time");
                match done.result {
                    Ok(len) => format!("{len} {}", verdict(&done.buffers[0][..len], parse(seed))),
                    Err(status) => format!("{status:?}"),
                }
            }
            ["flood", name, remote, count] => {
                let (pair, queues) = self.pairs.remove(name).expect("it is connected");
                let leases = LENGTHS.map(|len| self.domain.lease_from(&vec![FLOOD; len]).expect("memory"));
                let (remote, count) = (parse(remote), parse(count));
                std::thread::spawn(move || flood(pair, &queues, remote, count, leases));
                "begun".to_owned()
            }
            _ => return None,
        };
        Some(answer)
    }

    /// Commands about the process and its device.
    fn answer_of_itself(&mut self, words: &[&str]) -> Option<String> {
        let answer = match *words {
            ["counters"] => {
                let (core, link) = self.device.counters();
                let all = core.named().chain(link.named());
                let pairs: Vec<String> = all.map(|(name, count)| format!("{name}={count}")).collect();
                pairs.join(" ")
            }
            // The victim by one of its endpoints.
            ["attack", name, victim] => {
                let victim = parse::<Endpoint>(victim);
                Attack::new(victim.ip, victim.qpn.value()).run(name)
            }
            ["left"] => left(),
            ["confine", how] => {
                Confinement::from_str(how).expect("understood").enter();
                "done".to_owned()
            }
            ["devices"] => devices(),
            ["usage"] => format!("{}", self.device.usage().queue_pairs),
            _ => return None,
        };
        Some(answer)
    }

    fn prepare(&mut self, name: &str) -> String {
        let queue = || self.device.completion_queue(64).expect("a queue");
        let queues = Queues {
            sent: queue(),
            received: queue(),
        };
        let builder = self.domain.queue_pair_builder::<Rc>(&queues.sent);
        let prepared = builder
            .receive_completions(&queues.received)
            .build()
            .expect("a queue pair");
        let endpoint = prepared.endpoint().to_string();
        self.prepared.insert(name.to_owned(), (prepared, queues));
        endpoint
    }

    fn connect(&mut self, name: &str, endpoint: &str, options: &ConnectOptions) -> String {
        let (prepared, queues) = self.prepared.remove(name).expect("it was prepared");
        let endpoint = parse::<Endpoint>(endpoint);
        let pair = prepared.connect_with(&endpoint, options).expect("connected");
        self.pairs.insert(name.to_owned(), (pair, queues));
        "done".to_owned()
    }

    fn lease(&self, len: usize) -> Lease {
        self.domain.lease(len).expect("memory")
    }

    fn message(&self, seed: &str, len: &str) -> Lease {
        self.domain
            .lease_from(&message(parse(seed), parse(len)))
            .expect("memory")
    }

    /// Posts a request and waits for it: how it went, and what is made of its buffer.
    fn sends(
        &mut self,
        name: &str,
        post: impl FnOnce(&mut SendQueue<Rc>) -> Result<(), nonic::Refused>,
        look: impl FnOnce(&[u8]) -> String,
    ) -> String {
        let (pair, queues) = self.pairs.get_mut(name).expect("it is connected");
        post(&mut pair.sq).expect("posted");
        let Some(done) = queues.sent.wait(PATIENCE).expect("no overflow") else {
            return "hangs".to_owned();
        };
        match done.result {
            Ok(_) => format!("ok {}", look(&done.buffers[0])).trim().to_owned(),
            Err(status) => format!("{status:?}"),
        }
    }

    /// Takes memory back, uses it, and looks whether another process still does.
    fn revoke(&mut self, shelf: &str) -> String {
        let exposed = self.shelves.remove(shelf).expect("it is exposed");
        let begun = Instant::now();
        let mut lease = exposed.into_lease();
        let took = begun.elapsed();
        lease.fill(OURS);
        self.taken_back.insert(shelf.to_owned(), lease);
        let lease = &self.taken_back[shelf];
        let until = Instant::now() + Duration::from_millis(3);
        let mut clean = true;
        while clean && Instant::now() < until {
            clean = is_ours(lease);
        }
        format!("{} {}", if clean { "clean" } else { "dirty" }, took.as_millis())
    }
}

/// Whether no other process has written to it.
fn is_ours(lease: &Lease) -> bool {
    std::hint::black_box(&lease[..]).iter().all(|byte| *byte == OURS)
}

fn remote_slice(remote: &str, len: &str) -> RemoteSlice {
    parse::<RemoteSlice>(remote).slice(..parse::<u64>(len))
}

fn verdict(bytes: &[u8], seed: u64) -> String {
    match bytes
        .iter()
        .enumerate()
        .find(|(at, found)| **found != byte(seed, *at))
    {
        None => "good".to_owned(),
        Some((at, _)) => format!("wrong at {at} of {}", bytes.len()),
    }
}

fn word(bytes: &[u8]) -> String {
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes")).to_string()
}

/// WRITEs of several lengths, one after the other or some at a time, until one fails.
fn flood(
    mut pair: QueuePair<Rc>,
    queues: &Queues,
    remote: RemoteSlice,
    count: u64,
    leases: [Lease; LENGTHS.len()],
) {
    let mut idle: Vec<Lease> = leases.into();
    let (mut posted, mut done, mut status) = (0, 0, None);
    loop {
        while status.is_none() && posted < count && posted - done < DEPTH as u64 {
            let Some(lease) = idle.pop() else { break };
            let target = remote.slice(..lease.len() as u64);
            match pair.sq.write(posted, lease, target) {
                Ok(()) => posted += 1,
                Err(_) => break,
            }
        }
        if posted == done {
            break;
        }
        match queues.sent.wait(PATIENCE).expect("no overflow") {
            Some(completion) => {
                done += 1;
                status = status.or(completion.result.err());
                idle.splice(0..0, completion.buffers);
            }
            None => {
                say(&format!("ended hanging {done}"));
                return;
            }
        }
    }
    drop(pair);
    match status {
        Some(status) => say(&format!("ended {status:?} {done}")),
        None => say(&format!("ended ok {done}")),
    }
}

/// Which roads `nonic devices -v` says are taken, when it is started by this process.
fn devices() -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nonic"));
    let output = command.args(["devices", "-v"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("WRITEs and READs"));
    line.unwrap_or_else(|| panic!("no word of it: {text}")).to_owned()
}

/// Descriptors of this process, and mappings of lanes and of what other processes publish.
fn left() -> String {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("our own").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own");
    let ours = |line: &&str| line.contains("nonic-lane") || line.contains("nonic-published");
    format!(
        "{descriptors} descriptors, {} mappings",
        maps.lines().filter(ours).count()
    )
}
