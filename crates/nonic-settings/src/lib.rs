//! The environment variables of nonic, `NONIC_*`: all of them, read in one place.
//!
//! [`ALL`] is the list; `docs/settings.md` and the help of the `nonic` command are made from it ([`page`], [`help`]).
//! [`Environment::read`] is the only reader, and refuses a variable or a value it does not know: a misspelt one must not
//! pass in silence. What a value means is decided where it is used.
//!
//! ```
//! use nonic_settings::Environment;
//!
//! let misspelt = [("NONIC_PACP".into(), "ping.pcapng".into())];
//! let refusal = Environment::of(misspelt).unwrap_err();
//! assert!(refusal.to_string().contains("NONIC_PCAP"), "it says what was meant: {refusal}");
//! ```
//!
//! Variables that begin with `NONIC_TEST_` belong to tests and are left alone.

#![forbid(unsafe_code)]

mod pages;
mod writable;

pub use pages::{help, page};
pub use writable::check_writable;

use std::ffi::OsString;
use std::fmt;

/// What every variable of ours begins with, and those of tests.
const PREFIX: &str = "NONIC_";
const TEST_PREFIX: &str = "NONIC_TEST_";

/// One variable.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What may stand there.
    pub form: Form,
    /// What it does: one or two sentences.
    pub about: &'static str,
}

/// What may stand in a variable.
#[derive(Debug, PartialEq, Eq)]
pub enum Form {
    /// One of these words; the first is what happens without the variable.
    Choice(&'static [&'static str]),
    /// A number in this range; the first is what happens without the variable.
    Number(u32, u32),
    /// The name of a file. `%p` in it becomes the process id.
    File,
    /// Something whose syntax the user of the setting checks; and how to write it.
    Text(&'static str),
}

/// How the ICRC of packets is checked.
pub static ICRC: Setting = Setting {
    name: "NONIC_ICRC",
    form: Form::Choice(&["lenient", "strict"]),
    about: "`strict` refuses IPv4 packets whose Identification nonic does not send. A socket cannot see that field, so for \
            others (Linux's rxe, hardware) it is solved for, at the cost of half the checksum.",
};

/// Whether the kernel cuts batches into packets.
pub static GSO: Setting = Setting {
    name: "NONIC_GSO",
    form: Form::Choice(&["on", "off"]),
    about: "`off` hands every packet to the kernel alone, instead of a batch that it cuts up.",
};

/// Where counters go.
pub static COUNTERS: Setting = Setting {
    name: "NONIC_COUNTERS",
    form: Form::File,
    about: "Appends each device's counters to the file when it is closed or the process exits, one `name value` per line.",
};

/// What is told on standard error.
pub static LOG: Setting = Setting {
    name: "NONIC_LOG",
    form: Form::Text("warn,qp=debug,cm=info"),
    about: "Says on standard error what goes wrong and why, one line each: `error`, `warn` (each first failure of a queue pair, and each \
            refused call), `info` (state changes, connections), `debug` (packets out of the ordinary, how long connecting took) or `trace` (how \
            long each awaited request of the Rust API took); and the same for one part alone: `device`, `qp`, `cm`, `memory`, `link`, \
            `direct`, `verbs`, `request`. Without it, all that is said is why a device cannot be opened, and that another program has UDP port \
            4791; `off` is silent.",
};

/// Where packets go.
pub static PCAP: Setting = Setting {
    name: "NONIC_PCAP",
    form: Form::File,
    about: "Writes every packet that the process sends and receives to the file, as pcapng, which `nonic draw`, Wireshark and tshark read. \
            A new file can be read by its owner alone. Devices that are open at the same time write to one file, each as an interface of its own. Of iWARP it writes the bytes that \
            the kernel took and gave, as TCP segments with made-up headers: what TCP sent again is not seen.",
};

/// Disturbs what is received.
pub static FAULTS: Setting = Setting {
    name: "NONIC_FAULTS",
    form: Form::Text("loss=1%,dup=0.1%,reorder=1%,hold=1ms,corrupt=0.01%,delay=200us,seed=7"),
    about: "Loses, duplicates, reorders, corrupts and delays packets that the process receives, each part optional. `hold` is \
            for how long at most a duplicated or reordered packet is held back (without it: 1 ms); the same `seed` makes the \
            same decisions. Which packets, by kind, number, time and direction, and what else can be made to fail: docs/faults.md. \
            What was done is among the counters, as `faults_*`.",
};

/// How many pipelines a device has.
pub static SHARDS: Setting = Setting {
    name: "NONIC_SHARDS",
    form: Form::Number(1, 16),
    about: "How many pipelines, each with sockets and a background thread of its own, a device has. New queue pairs are \
            given to them in turn.",
};

/// Whether acknowledgements and short requests may wait to travel together.
pub static PROMPT_ACKS: Setting = Setting {
    name: "NONIC_PROMPT_ACKS",
    form: Form::Choice(&["off", "on"]),
    about: "`on` sends acknowledgements and short requests at once; otherwise they may wait for the program's next call, for \
            the answer to an earlier request, or for half a millisecond, to travel or be executed together.",
};

/// Whether processes of one host send to each other's own ports.
pub static NO_SHORTCUT: Setting = Setting {
    name: "NONIC_NO_SHORTCUT",
    form: Form::Choice(&["off", "on"]),
    about: "`on` has processes of one host talk over port 4791, as different hosts do. A testing aid.",
};

/// Whether processes of one host send to each other through memory.
pub static LANE: Setting = Setting {
    name: "NONIC_LANE",
    form: Form::Choice(&["on", "off"]),
    about: "`off` has processes of one host and user send packets over UDP, where they would otherwise write records to shared \
            memory. With `NONIC_PCAP` or `NONIC_FAULTS` they do so anyway.",
};

/// Whether requests are executed in the memory of processes of this host.
pub static DIRECT: Setting = Setting {
    name: "NONIC_DIRECT",
    form: Form::Choice(&["on", "off"]),
    about: "`off` never lets the requester execute a WRITE, READ or atomic itself in the memory of a process of this host and user, \
            nor others do so in ours: they go as records.",
};

/// Whether programs are shown loopback devices.
pub static LOOPBACK: Setting = Setting {
    name: "NONIC_LOOPBACK",
    form: Form::Choice(&["auto", "on", "only", "off"]),
    about: "Whether `roce_lo` is in the list of devices, of which many programs take the first or use all: `auto` lists it \
            where no other device is up with an address that other hosts reach. `on` lists it as well, last, with the \
            smallest path MTU of the devices listed. `only` lists nothing else: for both ends on one machine. Names and \
            addresses given by a program find it always.",
};

/// What devices speak.
pub static WIRE: Setting = Setting {
    name: "NONIC_WIRE",
    form: Form::Choice(&["roce", "iwarp", "both"]),
    about: "What the devices speak that programs are shown: RoCEv2 over UDP (`roce_…`), iWARP over TCP (`iwarp_…`), or both. \
            Who names only an address gets the first of them. `nonic run --wire` sets it.",
};

/// Whether iWARP's frames carry checksums.
pub static IWARP_CRC: Setting = Setting {
    name: "NONIC_IWARP_CRC",
    form: Form::Choice(&["on", "off"]),
    about: "`off` does not ask peers of iWARP devices for a CRC32C in each frame. A peer that asks for it gets it.",
};

/// What becomes of sockets that RDMA does not reach.
pub static SOCKETS: Setting = Setting {
    name: "NONIC_SOCKETS",
    form: Form::Choice(&["fall-back", "rdma-only"]),
    about: "For `nonic run --sockets`: `rdma-only` never uses TCP, so a `connect` that RDMA cannot make fails.",
};

/// Which sockets are carried.
pub static PRELOAD_CONFIG: Setting = Setting {
    name: "NONIC_PRELOAD_CONFIG",
    form: Form::File,
    about: "For `nonic run --sockets`: which sockets are carried, instead of `/etc/rdma/rsocket/preload_config`; see \
            `docs/sockets.md` for the format.",
};

/// Where the files of the devices are.
pub static FILES: Setting = Setting {
    name: "NONIC_FILES",
    form: Form::File,
    about: "Set by `nonic run`: the folder that stands for `/sys/class/infiniband` and `/dev/infiniband`; see `docs/files.md`.",
};

/// Whether other processes are told what is in this one.
pub static INSPECT: Setting = Setting {
    name: "NONIC_INSPECT",
    form: Form::Choice(&["on", "off"]),
    about: "`off` tells nobody what is in the process: `nonic ps`, `show`, `metrics` and `top` do not see it. Otherwise processes of the \
            same user are told; see `docs/inspect.md`.",
};

/// Every setting, in the order in which people look for them.
pub static ALL: [&Setting; 18] = [
    &LOG,
    &PCAP,
    &COUNTERS,
    &FAULTS,
    &LOOPBACK,
    &WIRE,
    &IWARP_CRC,
    &ICRC,
    &GSO,
    &SHARDS,
    &PROMPT_ACKS,
    &LANE,
    &DIRECT,
    &NO_SHORTCUT,
    &SOCKETS,
    &PRELOAD_CONFIG,
    &FILES,
    &INSPECT,
];

/// Why an environment is refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// There is no such setting.
    #[error("there is no setting {name}; did you mean {nearest}? All are listed by `nonic --help`")]
    Unknown {
        /// The variable.
        name: String,
        /// The setting whose name is most like it.
        nearest: &'static str,
    },
    /// The value is none of those it may have.
    #[error("{name}={value}: must be {expected}")]
    Value {
        /// The variable.
        name: &'static str,
        /// What it says.
        value: String,
        /// What it may say.
        expected: String,
    },
}

/// As a sentence: it is what a program prints that ends with it.
impl fmt::Debug for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Setting {
    /// The refusal of a value.
    pub fn refuse(&self, value: &str, expected: impl Into<String>) -> SettingError {
        SettingError::Value {
            name: self.name,
            value: value.to_owned(),
            expected: expected.into(),
        }
    }

    fn check(&self, value: &str) -> Result<(), SettingError> {
        match self.form {
            Form::Choice(words) if word(words, value).is_none() => {
                Err(self.refuse(value, words.join(" or ")))
            }
            Form::Number(least, most) => match value.parse::<u32>() {
                Ok(number) if (least..=most).contains(&number) => Ok(()),
                _ => Err(self.refuse(value, format!("a number from {least} to {most}"))),
            },
            _ => Ok(()),
        }
    }
}

/// Which of the words a value is. Switches take 1 and 0 too, as most programs' do.
fn word(words: &[&'static str], value: &str) -> Option<&'static str> {
    let meant = match value {
        "1" => "on",
        "0" => "off",
        other => other,
    };
    words.iter().find(|word| **word == meant).copied()
}

/// What the environment says, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    values: Vec<(&'static str, String)>,
}

impl Environment {
    /// Reads the variables of this process.
    pub fn read() -> Result<Self, SettingError> {
        Self::of(std::env::vars_os())
    }

    /// Reads these variables. One that is empty counts as not set.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self, SettingError> {
        let mut values = Vec::new();
        for (name, value) in variables {
            let name = name.to_string_lossy();
            if !name.starts_with(PREFIX) || name.starts_with(TEST_PREFIX) || value.is_empty() {
                continue;
            }
            let setting = ALL.iter().find(|setting| setting.name == name);
            let setting = setting.ok_or_else(|| SettingError::Unknown {
                name: name.to_string(),
                nearest: nearest(&name),
            })?;
            let value = value.to_string_lossy().into_owned();
            setting.check(&value)?;
            values.push((setting.name, value));
        }
        Ok(Environment { values })
    }

    /// What a setting says, if it is set.
    pub fn text(&self, setting: &Setting) -> Option<&str> {
        let found = self.values.iter().find(|(name, _)| *name == setting.name);
        found.map(|(_, value)| value.as_str())
    }

    /// The file a setting names.
    pub fn file(&self, setting: &Setting) -> Option<String> {
        let process = std::process::id().to_string();
        self.text(setting).map(|name| name.replace("%p", &process))
    }

    /// The word that was chosen, or the usual one; empty for a setting that is no choice.
    pub fn choice(&self, setting: &Setting) -> &'static str {
        let Form::Choice(words) = setting.form else {
            return "";
        };
        let chosen = self.text(setting).and_then(|value| word(words, value));
        chosen.or(words.first().copied()).unwrap_or_default()
    }

    /// Whether a choice was made that is not the usual one.
    pub fn is_unusual(&self, setting: &Setting) -> bool {
        let Form::Choice(words) = setting.form else {
            return false;
        };
        Some(&self.choice(setting)) != words.first()
    }

    /// The number a setting says, or its usual one.
    pub fn number(&self, setting: &Setting) -> u32 {
        let said = self.text(setting).and_then(|value| value.parse().ok());
        match setting.form {
            Form::Number(usual, _) => said.unwrap_or(usual),
            _ => said.unwrap_or(0),
        }
    }
}

/// The setting whose name takes the fewest changes of a letter to become `name`.
fn nearest(name: &str) -> &'static str {
    let distances = ALL
        .iter()
        .map(|setting| (distance(name, setting.name), setting.name));
    distances.min().map_or(PREFIX, |(_, nearest)| nearest)
}

/// How many letters must be changed, added or left out to make one of the other. `nonic explain` suggests names by it, too.
pub fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for column in 0..to.len() {
            let changed = diagonal + usize::from(letter != to[column]);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Environment, SettingError> {
        Environment::of(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn nothing_said_is_the_usual() {
        let environment = of(&[("PATH", "/bin"), ("NONIC_ICRC", "")]).expect("nothing of ours");
        assert_eq!(environment, Environment::default());
        assert!(!environment.is_unusual(&ICRC));
        assert_eq!(environment.choice(&LOOPBACK), "auto");
        assert_eq!(environment.number(&SHARDS), 1);
        assert_eq!(environment.file(&PCAP), None);
    }

    #[test]
    fn values_are_read() {
        let said = [
            ("NONIC_ICRC", "strict"),
            ("NONIC_GSO", "on"),
            ("NONIC_NO_SHORTCUT", "1"),
            ("NONIC_SHARDS", "2"),
            ("NONIC_LOOPBACK", "0"),
            ("NONIC_PCAP", "a-%p.pcapng"),
        ];
        let environment = of(&said).expect("all known");
        assert!(environment.is_unusual(&ICRC));
        assert!(!environment.is_unusual(&GSO));
        assert!(environment.is_unusual(&NO_SHORTCUT));
        assert_eq!(environment.choice(&LOOPBACK), "off");
        assert_eq!(environment.number(&SHARDS), 2);
        let file = format!("a-{}.pcapng", std::process::id());
        assert_eq!(environment.file(&PCAP), Some(file));
    }

    #[test]
    fn a_misspelt_variable_is_refused_with_the_nearest_name() {
        let error = of(&[("NONIC_FAULT", "loss=1%")]).expect_err("no such setting");
        let text =
            "there is no setting NONIC_FAULT; did you mean NONIC_FAULTS? All are listed by `nonic --help`";
        assert_eq!(error.to_string(), text);
        assert!(of(&[("NONIC_", "")]).is_ok());
        assert!(of(&[("NONIC_TEST_ANYTHING", "1")]).is_ok());
    }

    #[test]
    fn a_misspelt_value_is_refused_by_name() {
        let refused = |name, value| of(&[(name, value)]).expect_err("no such value").to_string();
        assert_eq!(
            refused("NONIC_ICRC", "strickt"),
            "NONIC_ICRC=strickt: must be lenient or strict"
        );
        assert_eq!(
            refused("NONIC_SHARDS", "0"),
            "NONIC_SHARDS=0: must be a number from 1 to 16"
        );
    }

    #[test]
    fn distances_count_letters() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
