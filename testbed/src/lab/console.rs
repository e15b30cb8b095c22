//! Complaints of a guest's kernel on its console, when something is wrong with the kernel itself.
//!
//! Read first: [`Complaint`]. It refuses to judge: whether a complaint counts is for the chore that runs the guest.

/// Text with which the kernel begins to complain about itself. What it says of packets or of programs is not among it.
const BEGINNINGS: [&str; 13] = [
    "BUG: ",
    "WARNING: ",
    "Oops: ",
    "INFO: task ",
    "INFO: rcu_",
    "rcu: INFO: rcu_",
    "Kernel panic",
    "kernel BUG at ",
    "watchdog: BUG: ",
    "general protection fault",
    "invalid opcode: ",
    "refcount_t: ",
    "UBSAN: ",
];

/// The line with which the kernel ends a complaint that shows a call trace.
const END_OF_TRACE: &str = "---[ end ";

/// More lines than that are not a complaint any more, but whatever came later.
const LONGEST: usize = 120;

/// How many functions of a call trace the short form names.
const NAMED: usize = 8;

/// What the kernel said of itself, from the first line that complains to the last of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    lines: Vec<String>,
}

impl Complaint {
    /// Finds the first complaint in what came out of the console, and all that belongs to it.
    pub(super) fn find(console: &str) -> Option<Self> {
        let lines: Vec<&str> = console.lines().map(without_time).collect();
        let first = lines.iter().position(|line| begins(line))?;
        let rest = &lines[first..lines.len().min(first + LONGEST)];
        // A panic follows the trace of its cause.
        let last = rest
            .iter()
            .rposition(|line| line.starts_with(END_OF_TRACE) || begins(line))
            .unwrap_or(0);
        let last = match rest[last].starts_with(END_OF_TRACE) {
            true => last,
            false => rest.len() - 1,
        };
        let lines = rest[..=last].iter().map(|line| (*line).to_owned()).collect();
        Some(Self { lines })
    }

    /// Every line.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The first line, and the functions that were being executed, innermost first.
    pub fn summary(&self) -> String {
        let mut functions: Vec<&str> = Vec::new();
        for name in self.lines.iter().filter_map(|line| function(line)) {
            if !functions.contains(&name) {
                functions.push(name);
            }
        }
        functions.truncate(NAMED);
        let first = self.lines.first().map_or("", String::as_str);
        match functions.is_empty() {
            true => first.to_owned(),
            false => format!("{first} in {}", functions.join(", ")),
        }
    }
}

/// A line as the kernel meant it: `[   12.345678] text`, with a carriage return.
fn without_time(line: &str) -> &str {
    let line = line.trim_end();
    match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((time, text)) if time.trim().parse::<f64>().is_ok() => text,
        _ => line,
    }
}

fn begins(line: &str) -> bool {
    BEGINNINGS.iter().any(|beginning| line.starts_with(beginning))
}

/// The function in a line such as `RIP: 0010:name+0x1f/0x990 [module]` or ` name+0x7f/0xd0`. A name with a question mark is
/// only a guess of the kernel's.
fn function(line: &str) -> Option<&str> {
    let word = match line.strip_prefix("RIP: 0010:") {
        Some(rest) => rest,
        None => line.strip_prefix(' ')?.trim_start(),
    };
    let (name, offset) = word.split_once("+0x")?;
    let is_name = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_.".contains(c));
    (is_name && offset.contains("/0x")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOPS: &str = "[    3.100000] rdma_rxe: loaded\r\n\
        [   41.269671] BUG: kernel NULL pointer dereference, address: 0000000000000010\r\n\
        [   41.270111] #PF: supervisor read access in kernel mode\r\n\
        [   41.270401] #PF: error_code(0x0000) - not-present page\r\n\
        [   41.270911] Oops: 0000 [#1] PREEMPT SMP NOPTI\r\n\
        [   41.271371] CPU: 0 PID: 212 Comm: ib_send_bw Not tainted 6.1.0-54-amd64 #1  Debian 6.1.190-1\r\n\
        [   41.272221] RIP: 0010:rxe_completer+0x1f/0x990 [rdma_rxe]\r\n\
        [   41.272821] Code: 00 00 0f 1f 44 00 00\r\n\
        [   41.273221] Call Trace:\r\n\
        [   41.273421]  <TASK>\r\n\
        [   41.273621]  ? __die_body.cold+0x1a/0x1f\r\n\
        [   41.273921]  rxe_do_task+0x7f/0xd0 [rdma_rxe]\r\n\
        [   41.274221]  tasklet_action_common.constprop.0+0xb8/0x130\r\n\
        [   41.274521]  </TASK>\r\n\
        [   41.274721] ---[ end trace 0000000000000000 ]---\r\n\
        [   41.275121] Kernel panic - not syncing: Fatal exception in interrupt\r\n\
        [   41.275421] Kernel Offset: disabled\r\n\
        [   41.275721] ---[ end Kernel panic - not syncing: Fatal exception in interrupt ]---\r\n";

    #[test]
    fn an_oops_is_found_with_the_functions_of_its_trace() {
        let complaint = Complaint::find(OOPS).expect("there is one");
        assert_eq!(complaint.lines().len(), 17);
        assert_eq!(
            complaint.summary(),
            "BUG: kernel NULL pointer dereference, address: 0000000000000010 in rxe_completer, rxe_do_task, \
             tasklet_action_common.constprop.0"
        );
    }

    #[test]
    fn what_comes_after_the_trace_is_not_part_of_it() {
        let console = "[   12.000001] ------------[ cut here ]------------\n\
            [   12.000002] WARNING: CPU: 0 PID: 9 at drivers/infiniband/sw/rxe/rxe_pool.c:278 rxe_elem_release+0x4b/0x60\n\
            [   12.000003] RIP: 0010:rxe_elem_release+0x4b/0x60 [rdma_rxe]\n\
            [   12.000004] ---[ end trace 0000000000000000 ]---\n\
            [   13.000000] rdma_rxe: bad ICRC from 10.77.0.254\n";
        let complaint = Complaint::find(console).expect("there is one");
        assert_eq!(complaint.lines().len(), 3);
        assert!(complaint.summary().ends_with("in rxe_elem_release"));
    }

    #[test]
    fn a_lockup_and_a_hung_task_are_complaints_too() {
        for line in [
            "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [ib_send_bw:212]",
            "INFO: task ib_send_bw:212 blocked for more than 120 seconds.",
            "rcu: INFO: rcu_preempt self-detected stall on CPU",
            "refcount_t: underflow; use-after-free.",
            "general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1]",
        ] {
            let console = format!("[    1.0] virtio_net: up\n[   99.123456] {line}\n");
            let complaint = Complaint::find(&console).expect(line);
            assert_eq!(complaint.summary(), line);
        }
    }

    #[test]
    fn what_is_said_of_packets_and_at_boot_is_no_complaint() {
        let console = "[    0.5] Spectre V2 : WARNING: Unprivileged eBPF is enabled\n\
            [    4.2] rdma_rxe: bad ICRC from 10.77.0.254\n\
            [    4.3] rxe0: qp#17 moved to error state\n\
            lab: cannot load /modules/001-x.ko\n\
            [    5.0] TCP: eth0: Driver has suspect GRO implementation, TCP performance may be compromised.\n";
        assert_eq!(Complaint::find(console), None);
        assert_eq!(Complaint::find(""), None);
    }
}
