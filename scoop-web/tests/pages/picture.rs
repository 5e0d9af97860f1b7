//! The picture of the README: a checkout fails and is undone, drawn from the tree of a run. Each event is a tick, so that the
//! picture does not depend on times. It plays by itself, in a loop; where nothing moves, it shows the end.

use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use scoop::EventKind;
use scoop::prelude::*;
use scoop::tree::{Bar, BarKind, RunEvent, RunInfo, Tree};
use scoop_test_support::postgres::Database;

use crate::browser::IMAGES;

const FILE: &str = "hierarchy.svg";
const BYTES_MAX: usize = 20_000;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.placed")]
struct OrderPlaced {}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "payments.take")]
struct TakePayment {}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "courier.book")]
struct BookCourier {}

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[error("no courier is free")]
struct NoCourier;

#[derive(Default)]
struct Checkout;

#[saga(name = "checkout")]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step]
    async fn pay(&self, scope: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        scope.launch(TakePayment {}).await?;
        Ok(())
    }

    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        scope.launch(BookCourier {}).await?;
        Ok(())
    }

    async fn release(&self, _: &mut Scope<'_>, _: &OrderPlaced, _: &Failure) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn confirm(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Payments;

#[saga(name = "payments")]
#[subscribes(TakePayment)]
impl Payments {
    #[step(rollback = refund)]
    async fn charge(&self, _: &mut Scope<'_>, _: &TakePayment) -> Result<()> {
        Ok(())
    }

    async fn refund(&self, _: &mut Scope<'_>, _: &TakePayment, _: &Failure) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Courier;

#[saga(name = "courier")]
#[subscribes(BookCourier)]
impl Courier {
    #[step]
    async fn book(&self, _: &mut Scope<'_>, _: &BookCourier) -> Result<()> {
        Err(NoCourier.into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn picture_of_the_readme_is_that_of_a_checkout() {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Checkout>().only::<Payments>().only::<Courier>().start().await.unwrap();
    let order = scoop.launch(OrderPlaced {}).await.unwrap();
    order.wait().await.unwrap();
    let tree = order.tree().await.unwrap();
    let drawn = draw(&tree);
    assert!(drawn.len() <= BYTES_MAX, "{} bytes", drawn.len());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if let Some(folder) = std::env::var_os(IMAGES) {
        return std::fs::write(root.join(folder).join(FILE), drawn).unwrap();
    }
    let stored = std::fs::read_to_string(root.join("docs/images").join(FILE)).unwrap_or_default();
    // Not `assert_eq`, which would print both.
    assert!(
        drawn == stored,
        "{FILE} is of another tree: write it by `{IMAGES}=docs/images cargo test -p scoop-web --test pages picture`\n{tree}"
    );
}

/// Sizes, in pixels.
const WIDTH: usize = 760;
const TOP: usize = 12;
const LINE: usize = 24;
const INDENT: usize = 22;
const STATES: usize = 190;
const BARS: (usize, usize) = (300, 744);

/// The length of a tick, and the ticks that the end is shown for.
const TICK_SECONDS: f64 = 0.8;
const END_TICKS: usize = 6;

const STYLE: &str = "\
svg{--bg:#fff;--text:#1c2430;--minor:#57606f;--run:#b9c2d0;--step:#2563eb;--wait:#7a8699;--comp:#c2410c;--good:#166534;--bad:#b91c1c;font:13px system-ui,sans-serif}
@media(prefers-color-scheme:dark){svg{--bg:#12161d;--text:#e6e9ef;--minor:#a3acba;--run:#4a5566;--step:#5b8def;--wait:#97a3b6;--comp:#f08a4b;--good:#6ee7a0;--bad:#ff8f8f}}
text{fill:var(--text)}.minor{fill:var(--minor)}.name{font-weight:600}
rect{transform-box:fill-box}.run{fill:var(--run)}.step{fill:var(--step)}.wait{fill:none;stroke:var(--wait);stroke-dasharray:3 3}.compensation{fill:var(--comp)}.failed{fill:var(--bad)}
.running,.waiting{fill:var(--step)}.committed{fill:var(--good)}.rolling,.rolled{fill:var(--comp)}
.path{fill:none;stroke:var(--bad);stroke-width:2}[pathLength]{stroke-dasharray:1}
.text>*{opacity:0}.text>:last-child{opacity:1}
";

/// The events that are drawn, each a tick.
struct Ticks<'a>(Vec<(SystemTime, &'a RunInfo, &'a RunEvent)>);

impl<'a> Ticks<'a> {
    fn of(tree: &'a Tree) -> Self {
        let events = tree.runs().into_iter().flat_map(|run| run.events.iter().map(move |event| (run, event)));
        let happened = |event: &RunEvent| match event.word() {
            "undoing children" => event.waited.is_some(),
            word => !["nothing to undo", "passed, nothing to undo"].contains(&word),
        };
        let shown = events.filter(|(_, event)| happened(event));
        let mut all: Vec<_> = shown.map(|(run, event)| (event.at.unwrap(), run, event)).collect();
        all.sort_by_key(|(at, ..)| *at);
        Self(all)
    }

    /// The tick of the last event until a time.
    fn at(&self, time: SystemTime) -> usize {
        self.0.partition_point(|(at, ..)| *at <= time).saturating_sub(1)
    }

    /// The place of a tick in the loop, in per cent.
    fn percent(&self, tick: usize) -> f64 {
        100.0 * tick as f64 / (self.0.len() + END_TICKS) as f64
    }

    fn x(&self, tick: usize) -> usize {
        BARS.0 + (BARS.1 - BARS.0) * tick / (self.0.len() - 1)
    }

    /// The ticks at which a run comes to states.
    fn states(&self, run: &RunInfo) -> Vec<(usize, &'static str)> {
        let mut states: Vec<(usize, &str)> = vec![];
        for (tick, (.., event)) in self.0.iter().enumerate().filter(|(_, (_, it, _))| it.id() == run.id()) {
            let state = match (event.kind, states.last().map_or("", |(_, state)| state)) {
                (EventKind::Committed, _) => "committed",
                (EventKind::RollingBack, "committed") => "rolling back",
                (EventKind::RollingBack, _) => "failed",
                (EventKind::RolledBack, _) => "rolled back",
                (_, "failed" | "rolling back") => "rolling back",
                _ if event.waited.is_some() => "waiting",
                _ => "running",
            };
            if states.last().is_none_or(|(_, last)| *last != state) {
                states.push((tick, state));
            }
        }
        states
    }

    /// The tick at which a run fails.
    fn failure(&self, run: &RunInfo) -> Option<usize> {
        self.states(run).into_iter().find(|(_, state)| *state == "failed").map(|(tick, _)| tick)
    }
}

/// Draws a tree.
fn draw(tree: &Tree) -> String {
    let (ticks, bars) = (Ticks::of(tree), tree.timeline());
    let (mut moves, mut shapes) = (String::new(), String::new());
    let y = |row: usize| TOP + LINE * row + LINE / 2;
    for (row, bar) in bars.iter().enumerate() {
        let (x, y) = (indent(bar.run) + if bar.kind == BarKind::Run { 0 } else { 14 }, y(row) + 4);
        let (from, to) = (ticks.at(bar.from), ticks.at(bar.to.unwrap()));
        let fails = if class_of(bar) == "failed" { " fails" } else { "" };
        let name = format!("{} {}{fails}", bar.words, bar.name);
        let class = if bar.kind == BarKind::Run { "name" } else { "minor" };
        let shown = move_once(&mut moves, "o", "opacity:.3", "opacity:1", &ticks, (from, from));
        let _ = writeln!(
            shapes,
            "<text class=\"{class}\" style=\"{shown}\" x=\"{x}\" y=\"{y}\">{}</text>",
            name.trim()
        );
        let (left, right) = (ticks.x(from), ticks.x(to).max(ticks.x(from) + 6));
        let grown = move_once(&mut moves, "w", "transform:scaleX(0)", "transform:none", &ticks, (from, to));
        let _ = writeln!(
            shapes,
            "<rect class=\"{}\" style=\"{grown}\" x=\"{left}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\"/>",
            class_of(bar),
            if bar.kind == BarKind::Run { y - 6 } else { y - 9 },
            right - left,
            if bar.kind == BarKind::Run { 4 } else { 10 }
        );
        if bar.kind == BarKind::Run {
            let states = ticks.states(bar.run);
            let texts = states
                .iter()
                .map(|(tick, state)| (*tick, state.split(' ').next().unwrap(), (*state).to_owned()));
            write_texts(&mut shapes, &mut moves, &ticks, (STATES, y), texts.collect());
        }
    }
    // A failure goes from a child to its parent.
    let row_of = |run: &RunInfo| {
        bars.iter().position(|bar| bar.kind == BarKind::Run && bar.run.id() == run.id()).unwrap()
    };
    for parent in tree.runs() {
        for child in &parent.children {
            if let (Some(from), Some(to)) = (ticks.failure(child), ticks.failure(parent)) {
                let (before, after) = ("stroke-dashoffset:1", "stroke-dashoffset:0");
                let drawn = move_once(&mut moves, "d", before, after, &ticks, (from, to));
                let arrives = move_once(&mut moves, "a", "opacity:0", "opacity:1", &ticks, (to, to));
                let (x, end) = (indent(child) - 6, indent(parent) - 12);
                let (from, to) = (y(row_of(child)), y(row_of(parent)));
                let _ = writeln!(
                    shapes,
                    "<path class=\"path\" style=\"{drawn}\" pathLength=\"1\" d=\"M{x} {from}H{end}V{to}h6\"/>\n\
                     <path class=\"path\" style=\"{arrives}\" d=\"M{} {}l4 4-4 4\"/>",
                    end + 4,
                    to - 4
                );
            }
        }
    }
    let captions = ticks.0.iter().enumerate().map(|(tick, (_, run, event))| (tick, "", in_words(run, event)));
    let height = TOP + LINE * bars.len() + 40;
    write_texts(&mut shapes, &mut moves, &ticks, (16, height - 14), captions.collect());
    let seconds = TICK_SECONDS * (ticks.0.len() + END_TICKS) as f64;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"A checkout fails: each \
         run and step on a scale of time, forward and back\">\n<style>\n{STYLE}\
         [style]{{animation:{seconds:.1}s linear infinite}}\n@media(prefers-reduced-motion:reduce){{[style]{{animation:none!important}}}}\n\
         {moves}</style>\n<rect width=\"{WIDTH}\" height=\"{height}\" rx=\"6\" fill=\"var(--bg)\"/>\n{shapes}</svg>\n"
    )
}

fn indent(run: &RunInfo) -> usize {
    24 + INDENT * (run.lineage.ids().len() - 2)
}

fn class_of(bar: &Bar<'_>) -> &'static str {
    let fails = |event: &RunEvent| event.kind == EventKind::RollingBack && event.at == bar.to;
    if bar.kind == BarKind::Step && bar.run.events.iter().any(fails) { "failed" } else { bar.kind.name() }
}

/// The style of what changes from one to another state between two ticks, whose movement is written.
fn move_once(
    moves: &mut String,
    kind: &str,
    before: &str,
    after: &str,
    ticks: &Ticks<'_>,
    (from, to): (usize, usize),
) -> String {
    let name = format!("{kind}{from}-{to}");
    if !moves.contains(&format!("@keyframes {name}{{")) {
        let (begin, end) = (ticks.percent(from), ticks.percent(to).max(ticks.percent(from) + 1.0));
        let _ = writeln!(moves, "@keyframes {name}{{0%,{begin:.1}%{{{before}}}{end:.1}%,to{{{after}}}}}");
    }
    format!("animation-name:{name}")
}

/// Writes texts in one place, each from its tick until that of the next: of each the tick, the class and the words.
fn write_texts(
    shapes: &mut String,
    moves: &mut String,
    ticks: &Ticks<'_>,
    (x, y): (usize, usize),
    texts: Vec<(usize, &str, String)>,
) {
    shapes.push_str("<g class=\"text\">\n");
    for (nth, (tick, class, text)) in texts.iter().enumerate() {
        let next = texts.get(nth + 1).map(|(tick, ..)| *tick);
        let name = format!("t{tick}-{}", next.unwrap_or_default());
        if !moves.contains(&format!("@keyframes {name}{{")) {
            let begin = ticks.percent(*tick);
            let end = next.map_or(String::new(), |next| {
                let end = ticks.percent(next);
                format!("{end:.1}%{{opacity:1}}{:.1}%,to{{opacity:0}}", end + 0.1)
            });
            let end = if end.is_empty() { "to{opacity:1}".into() } else { end };
            let _ = writeln!(
                moves,
                "@keyframes {name}{{0%,{begin:.1}%{{opacity:0}}{:.1}%{{opacity:1}}{end}}}",
                begin + 0.1
            );
        }
        let _ = writeln!(
            shapes,
            "<text class=\"{class}\" style=\"animation-name:{name}\" x=\"{x}\" y=\"{y}\">{text}</text>"
        );
    }
    shapes.push_str("</g>\n");
}

fn in_words(run: &RunInfo, event: &RunEvent) -> String {
    let link = if event.kind == EventKind::RollingBack { "in " } else { "" };
    let step = event.subject().map(|step| format!(" {link}{step}")).unwrap_or_default();
    let why = event.failure_in_words().map(|why| format!(": {why}")).unwrap_or_default();
    format!("{}: {}{step}{why}", run.handler, event.word())
}
