//! One guest: a QEMU process, a serial line for commands, a shared folder for results.
//!
//! A command is a file in the folder, announced on the serial line; output and exit status come back as files. So the
//! network under test carries nothing of ours, and a command may be started while others run.

use super::health::{Breakdown, Health};
use super::kernel::Kernel;
use crate::logged::{Finished, LoggedProcess, POLL_INTERVAL};
use crate::process::last_lines;
use anyhow::{Context, Result, bail, ensure};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A guest takes 5 s to boot on a quiet machine, and minutes on one with ten times as much to do as processors.
const BOOT_PATIENCE: Duration = Duration::from_secs(300);

/// What the guest is made of.
#[derive(Copy, Clone, Debug)]
pub(super) struct Hardware {
    pub(super) number: u8,
    pub(super) memory_mib: u32,
    pub(super) processors: u8,
    pub(super) mtu: u32,
}

/// How long a command may take that only asks or sets something.
const SHORT: Duration = Duration::from_secs(60);

/// A process that was killed and is there after so long waits for something in the kernel that does not come. More than what the
/// kernel itself takes to notice.
const UNKILLABLE: Duration = Duration::from_secs(40);

/// A running guest; ends with its value.
pub struct Guest {
    hardware: Hardware,
    emulator: LoggedProcess,
    folder: PathBuf,
    control: UnixStream,
    health: Health,
    commands: u32,
    /// The last command that was ended by force.
    killed: Option<Task>,
}

/// A command that was started in a guest.
#[derive(Clone, Debug)]
pub struct Task {
    number: u32,
}

impl Guest {
    /// Starts it and waits until it takes commands.
    pub(super) fn boot(kernel: &Kernel, folder: &Path, hardware: &Hardware) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let control = folder.join("control");
        let arguments = emulator(kernel, folder, &control, hardware);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut emulator = LoggedProcess::start(&words, &[], folder.join("emulator"))?;
        let deadline = Instant::now() + BOOT_PATIENCE;
        while !folder.join("ready").exists() {
            let console = std::fs::read(folder.join("console")).unwrap_or_default();
            let console = String::from_utf8_lossy(&console).into_owned();
            ensure!(
                emulator.runs(),
                "the guest died: {} {}",
                last_lines(&emulator.output()),
                last_lines(&console)
            );
            ensure!(
                Instant::now() < deadline,
                "the guest does not boot: {}",
                last_lines(&console)
            );
            std::thread::sleep(POLL_INTERVAL);
        }
        let control = UnixStream::connect(&control).context("no serial line to the guest")?;
        Ok(Self {
            hardware: *hardware,
            emulator,
            folder: folder.to_owned(),
            control,
            health: Health::new(folder),
            commands: 0,
            killed: None,
        })
    }

    /// Ends it without a chance to do anything, and boots another one in its place, with a folder of its own.
    pub(super) fn replace(&mut self, kernel: &Kernel, folder: &Path, mtu: u32) -> Result<()> {
        self.emulator.end();
        let hardware = Hardware { mtu, ..self.hardware };
        *self = Self::boot(kernel, folder, &hardware)?;
        Ok(())
    }

    /// Its number: N of `10.77.0.N` and `fd77::N`.
    pub fn number(&self) -> u8 {
        self.hardware.number
    }

    /// Whether it is still of use. Cheap: may be asked all the time.
    pub fn check(&mut self) -> Result<(), Breakdown> {
        self.health.check(&mut self.emulator, &mut self.control)
    }

    /// Whether it still does what it is told, and what was killed is gone. Takes a moment; a kernel that cannot end a process gets
    /// the time to say so itself.
    pub fn prove(&mut self) -> Result<(), Breakdown> {
        let Some(task) = self.killed.take() else {
            return self
                .run("true")
                .map(drop)
                .map_err(|error| broken(error, Breakdown::Silent));
        };
        let number = task.number;
        let gone = format!(
            "exec 9<> <(:); while kill -0 -- -$(cat /run/lab/{number}.process) 2>/dev/null; do read -rt 0.2 -u 9; done"
        );
        self.start(&gone)
            .and_then(|watch| self.wait(&watch, UNKILLABLE))
            .map(drop)
            .map_err(|error| broken(error, Breakdown::Unkillable))
    }

    /// This folder of ours is `/run/lab` there.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a command (bash).
    pub fn start(&mut self, command: &str) -> Result<Task> {
        self.check()?;
        self.commands += 1;
        let number = self.commands;
        std::fs::write(
            self.folder.join(format!("{number}.command")),
            format!("{command}\n"),
        )?;
        writeln!(self.control, "run {number}").context("the guest does not listen")?;
        Ok(Task { number })
    }

    /// Starts a server, and answers when `listens` (bash) is true, or when the server has ended.
    pub fn serve(&mut self, command: &str, listens: &str, patience: Duration) -> Result<Task> {
        let sign = format!("{}.listens", self.commands + 1);
        // Reading from a pipe without a writer is a sleep that starts no process: processes are slow in here.
        let task = self.start(&format!(
            "{command} & server=$!; exec 9<> <(:)\n\
             until {listens}; do kill -0 $server 2>/dev/null || break; read -rt 0.05 -u 9; done\n\
             : > /run/lab/{sign}; wait $server"
        ))?;
        let (sign, status) = (self.folder.join(sign), self.path(&task, "status"));
        let deadline = Instant::now() + patience;
        while !sign.exists() && !status.exists() {
            self.check()?;
            if Instant::now() > deadline {
                self.kill(&task)?;
                bail!(
                    "does not listen after {patience:?}: {}",
                    last_lines(&self.output(&task))
                );
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(task)
    }

    fn path(&self, task: &Task, what: &str) -> PathBuf {
        self.folder.join(format!("{}.{what}", task.number))
    }

    /// Waits for a command's end.
    pub fn wait(&mut self, task: &Task, patience: Duration) -> Result<Finished> {
        let deadline = Instant::now() + patience;
        loop {
            if let Ok(status) = std::fs::read_to_string(self.path(task, "status")) {
                return Ok(Finished {
                    output: self.output(task),
                    status: status.trim().parse().context("no exit status")?,
                });
            }
            self.check()?;
            if Instant::now() > deadline {
                self.kill(task)?;
                bail!(
                    "still runs after {patience:?}: {}",
                    last_lines(&self.output(task))
                );
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// What a command has printed so far.
    pub fn output(&self, task: &Task) -> String {
        let bytes = std::fs::read(self.path(task, "output")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Ends a command and all it started, without a chance to say goodbye.
    pub fn kill(&mut self, task: &Task) -> Result<()> {
        self.killed = Some(task.clone());
        writeln!(self.control, "kill {}", task.number).context("the guest does not listen")
    }

    /// Runs a command to its end, which must be a good one; answers what it printed.
    pub fn run(&mut self, command: &str) -> Result<String> {
        let task = self.start(command)?;
        let finished = self.wait(&task, SHORT)?;
        ensure!(
            finished.status == 0,
            "in the guest: {command}: exit status {}: {}",
            finished.status,
            last_lines(&finished.output)
        );
        Ok(finished.output)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It has nothing to lose: its files are ours, read-only, and the rest is memory.
        let _ = writeln!(self.control, "off");
    }
}

/// What is wrong with the guest: what was noticed, or else `otherwise`.
fn broken(error: anyhow::Error, otherwise: Breakdown) -> Breakdown {
    error.downcast().unwrap_or(otherwise)
}

fn emulator(kernel: &Kernel, folder: &Path, control: &Path, hardware: &Hardware) -> Vec<String> {
    let Hardware {
        number,
        memory_mib,
        processors,
        mtu,
    } = hardware;
    let (image, initramfs) = (kernel.image.display(), kernel.initramfs.display());
    let (folder, control) = (folder.display(), control.display());
    // Nothing is offloaded: the tap carries what a wire would.
    let offloads = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,\
        host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off";
    let share = "security_model=none,multidevs=remap";
    // Without `event_idx`: with it, the card now and then stops sending for good, as if a wake-up had been lost.
    let line = format!(
        "qemu-system-x86_64 -nodefaults -no-user-config -machine pc,vmport=off,hpet=off -display none -no-reboot \
         -accel tcg,thread=multi -cpu Nehalem -smp {processors} -m {memory_mib} -kernel {image} -initrd {initramfs} \
         -serial file:{folder}/console -chardev socket,id=control,path={control},server=on,wait=off \
         -serial chardev:control -device virtio-rng-pci \
         -netdev tap,id=wire,ifname=tap{number},script=no,downscript=no \
         -device virtio-net-pci,netdev=wire,romfile=,event_idx=off,mac=52:54:00:77:00:{number:02x},{offloads} \
         -virtfs local,path=/,mount_tag=host,readonly=on,{share} \
         -virtfs local,path={folder},mount_tag=mailbox,{share} -append"
    );
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    // An emulated timer on a busy machine may fail the kernel's check of it, which is a panic.
    // Call traces of tasks are printed as mere information.
    // A kernel that broke down ends, and the emulator with it; one that only warns says so on the console.
    words.push(format!(
        "console=ttyS0 no_timer_check quiet loglevel=5 panic=-1 oops=panic mitigations=off nokaslr random.trust_cpu=on net.ifnames=0 audit=0 \
         sysctl.kernel.hung_task_timeout_secs=20 sysctl.kernel.hung_task_check_interval_secs=5 sysctl.kernel.printk=7 lab={number} mtu={mtu}"
    ));
    words
}
