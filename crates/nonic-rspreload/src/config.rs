//! Configuration: which sockets are carried, and with what sizes.
//!
//! Without being told otherwise: TCP over IPv4 and IPv6. rdma-core's library carries UDP too, with which a
//! program that asks a name server no longer finds it; here that must be asked for.
//!
//! The file is rdma-core's (`/etc/rdma/rsocket/preload_config`, or what `NONIC_PRELOAD_CONFIG` names). A line is
//! `program domain type protocol`, each of which may be `*`, such as `curl INET STREAM TCP`; `#` begins a comment. If
//! there is a line, only what matches one is carried.

use libc::c_int;
use nonic_settings::{self as settings, Environment, SettingError};
use std::ffi::CStr;
use std::io::Write as _;
use std::sync::OnceLock;

/// Where rdma-core has it.
const FILE: &str = "/etc/rdma/rsocket/preload_config";

/// What was asked for.
pub(crate) struct Config {
    rules: Vec<Rule>,
    /// Options of every rsocket (`RDMA_SQSIZE` and so on) with their values.
    pub(crate) sizes: Vec<(c_int, c_int)>,
    /// Whether TCP takes over when RDMA does not reach.
    pub(crate) falls_back: bool,
    /// An unknown word was asked for: nothing is carried.
    refused: bool,
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    program: Option<String>,
    domain: Option<c_int>,
    kind: Option<c_int>,
    protocol: Option<c_int>,
}

/// What the environment and the file say; they are read once.
pub(crate) fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(Config::read)
}

impl Config {
    fn read() -> Self {
        use crate::rsockets::{RDMA_INLINE, RDMA_RQSIZE, RDMA_SQSIZE};
        let environment = match Environment::read() {
            Ok(environment) => environment,
            // No device would open either.
            Err(error) => return Config::refused(&error),
        };
        let file = environment.file(&settings::PRELOAD_CONFIG);
        let file = file.unwrap_or_else(|| FILE.into());
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let variables = [
            ("RS_SQ_SIZE", RDMA_SQSIZE),
            ("RS_RQ_SIZE", RDMA_RQSIZE),
            ("RS_INLINE", RDMA_INLINE),
        ];
        let size = |(variable, option): (&str, c_int)| {
            let value = std::env::var(variable).ok()?.parse().ok()?;
            (value > 0).then_some((option, value))
        };
        Config {
            rules: text.lines().filter_map(Rule::parse).collect(),
            sizes: variables.into_iter().filter_map(size).collect(),
            falls_back: !environment.is_unusual(&settings::SOCKETS),
            refused: false,
        }
    }

    /// Carries nothing, and says why.
    fn refused(error: &SettingError) -> Self {
        // A closed standard error is the program's business.
        let _ = writeln!(std::io::stderr(), "nonic: {error}; sockets are left alone");
        Config {
            rules: Vec::new(),
            sizes: Vec::new(),
            falls_back: true,
            refused: true,
        }
    }

    /// Whether such a socket is carried. The type comes without flags.
    pub(crate) fn carries(&self, domain: c_int, kind: c_int, protocol: c_int) -> bool {
        if self.refused {
            return false;
        }
        let protocol = match (kind, protocol) {
            (libc::SOCK_STREAM, 0) => libc::IPPROTO_TCP,
            (libc::SOCK_DGRAM, 0) => libc::IPPROTO_UDP,
            _ => protocol,
        };
        let known = matches!(domain, libc::AF_INET | libc::AF_INET6)
            && matches!(
                (kind, protocol),
                (libc::SOCK_STREAM, libc::IPPROTO_TCP) | (libc::SOCK_DGRAM, libc::IPPROTO_UDP)
            );
        if self.rules.is_empty() {
            return known && kind == libc::SOCK_STREAM;
        }
        let program = program();
        let mut rules = self.rules.iter();
        known && rules.any(|rule| rule.matches(&program, domain, kind, protocol))
    }
}

impl Rule {
    fn parse(line: &str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let mut words = line.split_whitespace();
        let (program, domain, kind, protocol) = (words.next()?, words.next()?, words.next()?, words.next()?);
        Some(Rule {
            program: (program != "*").then(|| program.to_ascii_lowercase()),
            domain: value(domain, &[("INET", libc::AF_INET), ("INET6", libc::AF_INET6)])?,
            kind: value(
                kind,
                &[("STREAM", libc::SOCK_STREAM), ("DGRAM", libc::SOCK_DGRAM)],
            )?,
            protocol: value(
                protocol,
                &[("TCP", libc::IPPROTO_TCP), ("UDP", libc::IPPROTO_UDP)],
            )?,
        })
    }

    fn matches(&self, program: &str, domain: c_int, kind: c_int, protocol: c_int) -> bool {
        // The beginning of the name is enough, as in rdma-core.
        self.program
            .as_ref()
            .is_none_or(|name| program.starts_with(name.as_str()))
            && self.domain.is_none_or(|wanted| wanted == domain)
            && self.kind.is_none_or(|wanted| wanted == kind)
            && self.protocol.is_none_or(|wanted| wanted == protocol)
    }
}

/// A word with or without the prefix it has in C; `*` is any value. An unknown word makes the line void.
fn value(word: &str, known: &[(&str, c_int)]) -> Option<Option<c_int>> {
    if word == "*" {
        return Some(None);
    }
    let word = word.to_ascii_uppercase();
    let prefixes = ["AF_", "PF_", "SOCK_", "IPPROTO_"];
    let stripped = prefixes.iter().find_map(|prefix| word.strip_prefix(prefix));
    let word = stripped.unwrap_or(&word);
    let found = known.iter().find(|(name, _)| *name == word);
    found.map(|(_, value)| Some(*value))
}

/// The name of the program, in small letters.
fn program() -> String {
    unsafe extern "C" {
        static program_invocation_short_name: *const libc::c_char;
    }
    // SAFETY: the C library sets it before anything of ours runs, and it stays.
    let name = unsafe { CStr::from_ptr(program_invocation_short_name) };
    name.to_string_lossy().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Config {
        Config {
            rules: text.lines().filter_map(Rule::parse).collect(),
            sizes: Vec::new(),
            falls_back: true,
            refused: false,
        }
    }

    const TCP: (c_int, c_int, c_int) = (libc::AF_INET, libc::SOCK_STREAM, 0);
    const UDP: (c_int, c_int, c_int) = (libc::AF_INET, libc::SOCK_DGRAM, 0);
    const UNIX: (c_int, c_int, c_int) = (libc::AF_UNIX, libc::SOCK_STREAM, 0);

    fn carries(config: &Config, (domain, kind, protocol): (c_int, c_int, c_int)) -> bool {
        config.carries(domain, kind, protocol)
    }

    #[test]
    fn tcp_and_nothing_else_unless_told() {
        let config = with("# nothing\n\nnot a line\n* INET NONSENSE TCP\n");
        assert!(carries(&config, TCP));
        assert!(!carries(&config, UDP));
        assert!(!carries(&config, UNIX));
        assert!(!config.carries(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP));
    }

    #[test]
    fn with_a_line_only_what_matches() {
        let config = with("* AF_INET sock_dgram *\n");
        assert!(carries(&config, UDP));
        assert!(!carries(&config, TCP));
        assert!(carries(&with("* * * *"), TCP));
        assert!(!carries(&with("* * * *"), UNIX));
        assert!(!carries(&with("another-program * * *"), TCP));
    }
}
