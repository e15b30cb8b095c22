//! Judgement: what the facts mean for a user who wants to run programs. One function per subject, none of which looks
//! anywhere else.

use super::Finding;
use super::facts::{DeviceFacts, Facts, LoadedLibrary};
use nonic::PortOwner;

/// What a device asks of the kernel for its sockets' buffers.
const BUFFER_BYTES: u64 = 4 << 20;

/// Fewer open files than this are soon used up: each device of a process has a few sockets, each channel a descriptor.
const OPEN_FILES: u64 = 1024;

/// The version of this command.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Every finding, what stops programs first in each subject.
pub(super) fn all(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![libraries(facts)];
    findings.extend(devices(&facts.devices));
    findings.extend(ports(&facts.devices, facts.uid));
    findings.push(buffers("receive buffers", "rmem_max", facts.receive_buffer_bytes));
    findings.push(buffers("send buffers", "wmem_max", facts.send_buffer_bytes));
    findings.push(batches(facts.batches));
    findings.push(open_files(facts.open_files));
    findings.push(locked_memory(facts.locked_memory_bytes));
    findings.push(same_host(facts.ptrace_scope));
    findings.push(namespaces(facts.user_namespaces));
    findings.push(seccomp(facts.seccomp));
    findings.push(kernel_devices(facts));
    findings.push(system_library(facts));
    findings.push(other_copies(&facts.other_copies));
    findings.push(settings(&facts.settings));
    findings
}

fn libraries(facts: &Facts) -> Finding {
    let subject = "libraries";
    let Some(folder) = &facts.libraries else {
        return Finding::problem(
            subject,
            "none beside this command: `nonic run` cannot start programs",
            "install the package, or `cargo xtask install` in a checkout; or `nonic run --lib DIR`",
        );
    };
    let place = folder.display();
    match facts.libraries_version.as_deref() {
        Some(VERSION) => Finding::ok(subject, format!("{place}, version {VERSION} as this command")),
        Some(other) => Finding::better(
            subject,
            format!("{place} is version {other}, this command {VERSION}"),
            "install both from the same package",
        ),
        None => Finding::ok(subject, format!("{place}, version unknown")),
    }
}

fn devices(devices: &[DeviceFacts]) -> Vec<Finding> {
    let usable: Vec<&DeviceFacts> = devices
        .iter()
        .filter(|device| device.up && !device.addresses.is_empty())
        .collect();
    if usable.is_empty() {
        let advice = "ip link set lo up; in a container, give it a network";
        return vec![Finding::problem(
            "devices",
            "no interface is up and has an address",
            advice,
        )];
    }
    let mut findings: Vec<Finding> = usable.iter().map(|device| device_finding(device)).collect();
    if usable.iter().all(|device| device.loopback) {
        findings.push(Finding::ok(
            "network",
            "only loopback: programs of this host reach each other, no others do",
        ));
    }
    findings
}

fn device_finding(device: &DeviceFacts) -> Finding {
    let addresses: Vec<&str> = device
        .addresses
        .iter()
        .map(|(address, _)| address.as_str())
        .collect();
    let found = format!(
        "{} {}, MTU {}, path MTU {}",
        device.name,
        addresses.join(" "),
        device.mtu,
        device.path_mtu
    );
    if device.path_mtu < 1024 {
        return Finding::better(
            "device",
            found,
            "an MTU of 1500 or more carries four times as much per packet",
        );
    }
    Finding::ok("device", found)
}

/// Port 4791 is shared by one user's processes, served to those of others, and lost to a program that does neither. Queue pairs
/// of one host that were connected by hand do not need it; messages of the connection manager do.
fn ports(devices: &[DeviceFacts], uid: u32) -> Vec<Finding> {
    let subject = "UDP port 4791";
    let mut findings = Vec::new();
    for (address, owner) in devices
        .iter()
        .filter(|device| device.up)
        .flat_map(|device| &device.addresses)
    {
        match owner {
            Ok(PortOwner::Nobody) => {}
            Ok(PortOwner::User { uid: owner }) if *owner == uid => {
                findings.push(Finding::ok(
                    subject,
                    format!("{address}: shared with your running programs"),
                ));
            }
            Ok(PortOwner::User { uid: owner }) => {
                let found =
                    format!("{address}: user {owner} has it; if that is nonic, it hands over what is yours");
                findings.push(Finding::ok(subject, found));
            }
            Ok(PortOwner::Other) => findings.push(Finding::better(
                subject,
                format!(
                    "{address}: taken by a program that does not share it, or the kernel's rxe; nothing arrives from other hosts, and \
                     connecting by address and port fails; queue pairs that programs of this host connect by themselves work"
                ),
                "`rdma link` shows rxe (`rdma link delete` ends it), `ss -ulpn sport = 4791` others",
            )),
            Err(error) => findings.push(Finding::better(
                subject,
                format!("{address}: cannot be bound: {error}"),
                "is the address still there, and may this process open sockets?",
            )),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(subject, "free on every address"));
    }
    findings
}

fn buffers(subject: &'static str, name: &str, bytes: Option<u64>) -> Finding {
    match bytes {
        None => Finding::ok(subject, "their limit cannot be seen here"),
        Some(bytes) if bytes >= BUFFER_BYTES => Finding::ok(subject, format!("up to {} KiB", bytes >> 10)),
        Some(bytes) => Finding::better(
            subject,
            format!(
                "up to {} KiB; more packets of UC and UD are lost in bursts",
                bytes >> 10
            ),
            format!("as root, on the host: sysctl -w net.core.{name}={BUFFER_BYTES}"),
        ),
    }
}

fn batches(batches: Option<(usize, usize)>) -> Finding {
    let subject = "UDP batches";
    match batches {
        Some((sent, received)) if sent > 1 && received > 1 => {
            Finding::ok(subject, format!("GSO of {sent} packets and GRO of {received}"))
        }
        Some((sent, received)) => {
            let missing = if sent > 1 {
                "GRO"
            } else if received > 1 {
                "GSO"
            } else {
                "neither GSO nor GRO"
            };
            let found = if missing.starts_with("neither") {
                missing.to_owned()
            } else {
                format!("no {missing}")
            };
            Finding::better(
                subject,
                format!("{found}: a system call per packet"),
                "Linux 5.0 or newer has both; gVisor and old kernels do not",
            )
        }
        None => Finding::problem(
            subject,
            "no UDP socket can be made",
            "is networking forbidden to this process?",
        ),
    }
}

fn open_files(limit: Option<Option<u64>>) -> Finding {
    let subject = "open files";
    match limit {
        Some(Some(limit)) if limit < OPEN_FILES => Finding::better(
            subject,
            format!("at most {limit}"),
            format!("ulimit -n {OPEN_FILES}"),
        ),
        Some(Some(limit)) => Finding::ok(subject, format!("at most {limit}")),
        Some(None) => Finding::ok(subject, "no limit"),
        None => Finding::ok(subject, "the limit cannot be seen here"),
    }
}

/// Never a problem: processors copy, not a device, so pages need not stay where they are. Memory that a program brings is not locked;
/// that of leases, which nonic maps itself, is as far as the limit goes, and beyond it registration succeeds all the same.
fn locked_memory(limit: Option<Option<u64>>) -> Finding {
    let limit = match limit {
        Some(Some(bytes)) => format!("limit {} KiB", bytes >> 10),
        Some(None) => "no limit".to_owned(),
        None => "limit unknown".to_owned(),
    };
    Finding::ok(
        "locked memory",
        format!("{limit}; registration does not depend on it, leases are locked as far as it goes"),
    )
}

fn same_host(ptrace_scope: Option<u32>) -> Finding {
    let subject = "ptrace (Yama)";
    match ptrace_scope {
        None | Some(0) => Finding::ok(subject, "processes of one user may reach each other's memory"),
        Some(1) => Finding::ok(
            subject,
            "scope 1: a process's memory is reached by those it allows",
        ),
        Some(scope) => Finding::ok(
            subject,
            format!("scope {scope}: no process reaches another's memory; data goes through sockets"),
        ),
    }
}

fn namespaces(allowed: Option<bool>) -> Finding {
    let subject = "user namespaces";
    match allowed {
        Some(true) => Finding::ok(subject, "allowed: files can be shown to static programs too"),
        Some(false) => Finding::ok(
            subject,
            "not allowed here, nor needed by programs that use the C library",
        ),
        None => Finding::ok(subject, "not tried: there is no `unshare` here"),
    }
}

fn seccomp(mode: Option<u32>) -> Finding {
    let found = match mode {
        Some(0) => "no filter",
        Some(2) => "a filter, as in containers",
        Some(_) => "strict mode",
        None => "unknown",
    };
    Finding::ok("seccomp", found)
}

fn kernel_devices(facts: &Facts) -> Finding {
    let files = if facts.device_files { "with" } else { "no" };
    let found = match facts.kernel_devices.as_slice() {
        [] => format!("none in the kernel, {files} /dev/infiniband; none is needed"),
        names => format!(
            "{}, {files} /dev/infiniband; not used under `nonic run`",
            names.join(" ")
        ),
    };
    Finding::ok("RDMA devices", found)
}

fn system_library(facts: &Facts) -> Finding {
    let found = match &facts.system_library {
        None => "none; programs linked with it run under `nonic run` all the same".to_owned(),
        Some(file) => format!("{}; under `nonic run` ours comes first", file.display()),
    };
    Finding::ok("system's verbs", found)
}

fn other_copies(copies: &[LoadedLibrary]) -> Finding {
    let subject = "other copies";
    // Where the libraries are does not matter.
    let others: Vec<&LoadedLibrary> = copies
        .iter()
        .filter(|copy| copy.version.as_deref() != Some(VERSION))
        .collect();
    let [first, rest @ ..] = &others[..] else {
        let found = format!("no process that can be seen runs on another version than {VERSION}");
        return Finding::ok(subject, found);
    };
    let more = if rest.is_empty() {
        String::new()
    } else {
        format!(" and {} more", rest.len())
    };
    let version = match &first.version {
        Some(version) => format!("version {version}"),
        None => "version unknown".to_owned(),
    };
    Finding::better(
        subject,
        format!(
            "process {} runs on {}, {version}{more}",
            first.process, first.file
        ),
        "processes of one host should run on the same version; start the old ones again",
    )
}

fn settings(settings: &[(String, String)]) -> Finding {
    let list: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let found = if list.is_empty() {
        "none set".to_owned()
    } else {
        list.join(" ")
    };
    Finding::ok("NONIC_*", found)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::facts::{mapped_copy, soft_limit, status_number};
    use super::*;

    fn device(owner: PortOwner) -> DeviceFacts {
        DeviceFacts {
            name: "roce_lo".to_owned(),
            up: true,
            loopback: true,
            mtu: 65536,
            path_mtu: 4096,
            addresses: vec![("127.0.0.1".to_owned(), Ok(owner))],
        }
    }

    fn healthy() -> Facts {
        Facts {
            devices: vec![device(PortOwner::Nobody)],
            libraries: Some("/usr/lib/nonic".into()),
            libraries_version: Some(VERSION.to_owned()),
            receive_buffer_bytes: Some(BUFFER_BYTES),
            send_buffer_bytes: Some(BUFFER_BYTES),
            batches: Some((64, 64)),
            open_files: Some(Some(OPEN_FILES)),
            ..Facts::default()
        }
    }

    fn worst(facts: &Facts) -> State {
        all(facts)
            .iter()
            .map(|finding| finding.state)
            .max()
            .expect("some")
    }

    #[test]
    fn a_healthy_machine_needs_nothing() {
        assert_eq!(worst(&healthy()), State::Ok);
    }

    #[test]
    fn whatever_is_not_ok_says_what_to_try() {
        let findings = all(&Facts::default());
        assert!(findings.iter().any(|finding| finding.state == State::Problem));
        for finding in findings {
            assert_eq!(
                finding.advice.is_none(),
                finding.state == State::Ok,
                "{finding:?}"
            );
        }
    }

    #[test]
    fn without_libraries_or_interface_programs_do_not_run() {
        let without_libraries = Facts {
            libraries: None,
            ..healthy()
        };
        assert_eq!(worst(&without_libraries), State::Problem);
        let without_interface = Facts {
            devices: Vec::new(),
            ..healthy()
        };
        assert_eq!(worst(&without_interface), State::Problem);
    }

    #[test]
    fn libraries_of_another_version_are_told_of() {
        let facts = Facts {
            libraries_version: Some("0.0.1".to_owned()),
            ..healthy()
        };
        assert_eq!(libraries(&facts).state, State::Better);
    }

    #[test]
    fn the_port_could_be_better_only_with_those_who_do_not_share() {
        let state = |owner| {
            ports(&[device(owner)], 1000)
                .iter()
                .map(|finding| finding.state)
                .max()
        };
        assert_eq!(state(PortOwner::Nobody), Some(State::Ok));
        assert_eq!(state(PortOwner::User { uid: 1000 }), Some(State::Ok));
        assert_eq!(state(PortOwner::User { uid: 7 }), Some(State::Ok));
        // Programs of this host run all the same, so nothing stops them.
        assert_eq!(state(PortOwner::Other), Some(State::Better));
        let taken = &ports(&[device(PortOwner::Other)], 1000)[0].found;
        assert!(taken.contains("nothing arrives from other hosts"), "{taken}");
    }

    #[test]
    fn small_buffers_could_be_better() {
        let finding = buffers("receive buffers", "rmem_max", Some(212_992));
        assert_eq!(finding.state, State::Better);
        assert!(
            finding
                .advice
                .is_some_and(|advice| advice.contains("net.core.rmem_max=4194304"))
        );
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let limits = "Max open files            1024                 524288               files     \n\
                      Max locked memory         unlimited            unlimited            bytes     \n";
        assert_eq!(soft_limit(limits, "Max open files"), Some(Some(1024)));
        assert_eq!(soft_limit(limits, "Max locked memory"), Some(None));
        assert_eq!(soft_limit(limits, "Max nice priority"), None);
        assert_eq!(
            status_number("Name:\tx\nUid:\t7\t8\t9\t9\nSeccomp:\t2\n", "Uid:"),
            Some(7)
        );
    }

    #[test]
    fn other_copies_are_judged_by_version_and_not_by_folder() {
        let copy = |version: Option<&str>| LoadedLibrary {
            process: 7,
            file: "/opt/nonic/lib/libibverbs.so.1".to_owned(),
            version: version.map(str::to_owned),
        };
        assert_eq!(other_copies(&[]).state, State::Ok);
        assert_eq!(other_copies(&[copy(Some(VERSION))]).state, State::Ok);
        let other = other_copies(&[copy(Some(VERSION)), copy(Some("0.0.1")), copy(None)]);
        assert_eq!(other.state, State::Better);
        assert!(
            other.found.contains("version 0.0.1 and 1 more"),
            "{}",
            other.found
        );
    }

    #[test]
    fn a_replaced_library_is_another_copy() {
        let line = "7f00-7f01 r-xp 00000000 fe:00 42   /opt/nonic/lib/libibverbs.so.1 (deleted)\n";
        assert_eq!(
            mapped_copy(line).as_deref(),
            Some("/opt/nonic/lib/libibverbs.so.1 (deleted)")
        );
        let system = "7f00-7f01 r-xp 00000000 fe:00 42   /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0\n";
        assert_eq!(mapped_copy(system), None);
    }
}
