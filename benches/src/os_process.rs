//! Memory and processor time of processes, as reported by the system.

use std::fs;

/// The clock ticks of a second in `/proc`, which are the same on every Linux.
const TICKS: f64 = 100.0;

/// The parent of a process, if that is one of PostgreSQL's on this machine.
pub(crate) fn parent_of_postgres(process: u32) -> Option<u32> {
    let stat = Stat::of(process)?;
    (stat.name == "postgres").then_some(stat.parent)
}

/// The processor time that a process has used, in seconds; 0 if it is gone.
pub(crate) fn processor_seconds(process: u32) -> f64 {
    Stat::of(process).map_or(0.0, |stat| stat.own)
}

/// The processor time of a process and its children, including ended ones, in seconds.
pub(crate) fn family_processor_seconds(process: u32) -> f64 {
    loop {
        let head = Stat::of(process);
        let others = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = others.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let children = pids.filter_map(Stat::of).filter(|stat| stat.parent == process);
        let living = children.map(|child| child.own).sum::<f64>();
        let ended = |stat: &Option<Stat>| stat.as_ref().map(|stat| stat.ended_children);
        // A child that ends meanwhile could be missed on both sides.
        if ended(&head) == ended(&Stat::of(process)) {
            return head.map_or(0.0, |stat| stat.own + stat.ended_children) + living;
        }
    }
}

/// How many processes wanted to run in the last minute, on average.
pub(crate) fn load_average() -> String {
    let averages = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    averages.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// The memory that a process has in use, in bytes; 0 if it is gone.
pub(crate) fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

struct Stat {
    name: String,
    parent: u32,
    own: f64,
    ended_children: f64,
}

impl Stat {
    fn of(process: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    /// The name is in brackets and may contain anything, so the fields are counted from the last bracket.
    fn parse(line: &str) -> Option<Self> {
        let (head, tail) = line.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(Self {
            name,
            parent: fields.get(1)?.parse().ok()?,
            own: (ticks(11)? + ticks(12)?) / TICKS,
            ended_children: (ticks(13)? + ticks(14)?) / TICKS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Stat;

    #[test]
    fn a_name_may_hold_brackets_and_blanks() {
        let line = "42 (a (b) c) S 7 42 42 0 -1 0 0 0 0 0 150 50 20 10 20 0 1 0";
        let stat = Stat::parse(line).expect("it is a line of stat");
        assert_eq!((stat.name.as_str(), stat.parent), ("a (b) c", 7));
        assert_eq!((stat.own, stat.ended_children), (2.0, 0.3));
    }
}
