//! A shop with sagas, and the program under test on its database.

use std::process::Stdio;

use expect_test::Expect;
use scoop::Builder;
use scoop::pauses::PauseTarget;
use scoop::prelude::*;
use scoop::tree::{RunState, Tree};
use scoop_test_support::Ends as _;
use scoop_test_support::postgres::Database;
use sqlx::ConnectOptions as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use uuid::Uuid;

/// What happens to an order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum Plan {
    #[default]
    Commit,
    /// It fails with this text, and is rolled back.
    Fail(String),
    /// It fails, and so does its compensation.
    FailToUndo,
    /// It launches a payment, which awaits a signal.
    Pay,
    /// It launches an order that fails and whose compensation fails.
    Nest,
    /// It launches such an order on so many levels, of which the last one fails, and its compensation, too.
    Deep(u32),
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "shop.orders", redact(card))]
pub(crate) struct Order {
    pub(crate) number: u32,
    pub(crate) plan: Plan,
    #[serde(default)]
    pub(crate) card: String,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "shop.payments")]
pub(crate) struct Payment {
    order: u32,
}

/// The customer has paid.
#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "shop.paid", retention = "1 day")]
pub(crate) struct Paid {
    cents: u32,
}

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[error("{0}")]
struct SoldOut(String);

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[error("the bank is closed")]
struct BankClosed;

#[derive(Default)]
pub(crate) struct Orders;

#[saga(name = "orders")]
#[subscribes(Order)]
impl Orders {
    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        if order.plan == Plan::Pay {
            scope.launch(Payment { order: order.number }).await?;
        }
        let below = match order.plan {
            Plan::Nest | Plan::Deep(0 | 1) => Some(Plan::FailToUndo),
            Plan::Deep(levels) => Some(Plan::Deep(levels - 1)),
            _ => None,
        };
        if let Some(plan) = below {
            scope.launch(Order { number: order.number, plan, card: String::new() }).await?;
        }
        Ok(())
    }

    async fn release(&self, _: &mut Scope<'_>, order: &Order, _: &Failure) -> Result<()> {
        if order.plan == Plan::FailToUndo { Err(BankClosed.into()) } else { Ok(()) }
    }

    #[step]
    async fn pack(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        match &order.plan {
            Plan::Fail(why) => Err(SoldOut(why.clone()).into()),
            Plan::FailToUndo => Err(SoldOut("none left".into()).into()),
            Plan::Commit | Plan::Pay | Plan::Nest | Plan::Deep(_) => Ok(()),
        }
    }
}

#[derive(Default)]
pub(crate) struct Payments;

#[saga(name = "payments")]
#[subscribes(Payment)]
impl Payments {
    #[step(awaits(Paid, by = key))]
    async fn collect(&self, _: &mut Scope<'_>, _: &Payment, _: &Paid) -> Result<()> {
        Ok(())
    }

    async fn key(&self, _: &mut Scope<'_>, payment: &Payment) -> Result<String> {
        Ok(format!("order {}", payment.order))
    }
}

/// A message whose saga belongs to another program.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "shop.mails")]
pub(crate) struct Mail {
    pub(crate) to: String,
}

#[derive(Default)]
pub(crate) struct Mails;

#[saga(name = "mails")]
#[subscribes(Mail)]
impl Mails {
    #[step]
    async fn send(&self, _: &mut Scope<'_>, _: &Mail) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Report;

#[saga(name = "report", every = "30 days")]
#[subscribes(Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Stocktaking;

/// It always fails.
#[saga(name = "stocktaking", every = "30 days")]
#[subscribes(Tick)]
impl Stocktaking {
    #[step]
    async fn count(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Err(SoldOut("a chair is missing".into()).into())
    }
}

/// The id of the worker that `Shop::register_worker` registers.
pub(crate) const OTHER_WORKER: &str = "0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a";

/// A database with the program that has both sagas.
pub(crate) struct Shop {
    pub(crate) db: Database,
    pub(crate) scoop: Scoop,
    url: String,
    /// The ids that were seen, in the order of their first appearance.
    ids: Vec<String>,
}

/// The result of a call of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit code.
    pub(crate) code: i32,
    /// The output as it is.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The exit code if it is not 0, the output and the errors, with ids, times and durations replaced.
    shown: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn shows(&self, expected: Expect) {
        expected.assert_eq(&self.shown);
    }

    /// The lines of JSON.
    pub(crate) fn lines(&self) -> Vec<serde_json::Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The values of a field in the lines of JSON.
    pub(crate) fn field(&self, name: &str) -> Vec<String> {
        let values = self.lines().into_iter().filter_map(|line| line.get(name).cloned());
        values.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect()
    }
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::with(|scoop| scoop).await
    }

    /// The same with these settings of the program.
    pub(crate) async fn with(settings: impl FnOnce(Builder) -> Builder) -> Self {
        let db = Database::new().await;
        let scoop = settings(db.scoop().only::<Orders>().only::<Payments>().service("shop").build("7"))
            .start()
            .await
            .unwrap();
        let url = db.pool().connect_options().to_url_lossy().to_string();
        Self { db, scoop, url, ids: vec![] }
    }

    /// Launches an order and waits for its end.
    pub(crate) async fn order(&self, number: u32, plan: Plan) -> scoop::Handle {
        let order = Order { number, plan, card: "4111".into() };
        let order = self.scoop.launch(order).unique(format!("order {number}")).await.unwrap();
        order.wait().await.unwrap();
        order
    }

    /// Launches an order that waits for its payment, which awaits a signal.
    pub(crate) async fn unpaid_order(&self, number: u32) -> scoop::Handle {
        let order = Order { number, plan: Plan::Pay, card: "4111".into() };
        let order = self.scoop.launch(order).unique(format!("order {number}")).await.unwrap();
        let awaits = |tree: &Tree| tree.runs().iter().any(|run| run.state == RunState::AwaitingSignal);
        order.comes_to(awaits).await.unwrap();
        order
    }

    /// Launches an order whose payment no program can begin.
    pub(crate) async fn stuck_order(&self, number: u32) -> scoop::Handle {
        let payments = PauseTarget::handler("payments");
        self.scoop.operate().pauses().pause(&payments).reason("a test").await.unwrap();
        let order = Order { number, plan: Plan::Pay, card: "4111".into() };
        let order = self.scoop.launch(order).await.unwrap();
        order.comes_to(|tree| tree.runs().len() == 2).await.unwrap();
        let stuck = "UPDATE scoop.run SET state = 'stuck', reason = 'the step `collect` is gone' WHERE handler = 'payments'";
        self.db.execute(stuck).await;
        self.scoop.operate().pauses().resume(&payments).await.unwrap();
        order
    }

    /// Launches an order whose rollback fails, and returns its run.
    pub(crate) async fn unmended_order(&mut self, number: u32) -> (scoop::Handle, String) {
        let order = self.order(number, Plan::FailToUndo).await;
        let run = order.tree().await.unwrap().runs()[0].id().to_string();
        (order, run)
    }

    /// Registers another worker with these definitions, as SQL. It lives as long as the session of the first one, and claims nothing.
    pub(crate) async fn register_worker(&self, definitions: &str) {
        self.db
            .execute(&format!(
                "INSERT INTO scoop.worker (id, lock_key, backend, role, topics, handlers, definitions, started_at)
                 SELECT '{OTHER_WORKER}', lock_key, backend, role, topics, handlers, {definitions}, now() FROM scoop.worker"
            ))
            .await;
    }

    /// Removes it.
    pub(crate) async fn remove_worker(&self) {
        self.db.execute(&format!("DELETE FROM scoop.worker WHERE id = '{OTHER_WORKER}'")).await;
    }

    /// Limits the payments as a program with such an attribute does.
    pub(crate) async fn limit_payments(&self) {
        self.db
            .execute(
                "INSERT INTO scoop.run_limit (saga, handlers, concurrency, concurrency_by_key, key_from, queue)
                 VALUES ('payments', '{payments}', 2, true, 'order', 1)",
            )
            .await;
    }

    /// The program on this database, with these arguments.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = program(args);
        command.env("DATABASE_URL", &self.url);
        command
    }

    /// The program on a terminal with so many columns.
    pub(crate) fn terminal(&self, columns: u16, args: &[&str]) -> Terminal {
        self.terminal_with(columns, args, &[])
    }

    /// The same with these variables of the environment.
    pub(crate) fn terminal_with(&self, columns: u16, args: &[&str], variables: &[(&str, &str)]) -> Terminal {
        let quoted = |text: &&str| format!("'{}'", text.replace('\'', r"'\''"));
        let words: Vec<_> = [env!("CARGO_BIN_EXE_scoop")].iter().chain(args).map(quoted).collect();
        // Without the answers in the output.
        let line = format!("stty cols {columns} rows 40 -echo; {}", words.join(" "));
        let mut command = Command::new("script");
        configure(&mut command, &["-q", "-e", "-c", &line, "/dev/null"]);
        command
            .env("DATABASE_URL", &self.url)
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped());
        let mut child = command.spawn().expect("`script` is installed");
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Terminal { child, stdin, stdout, written: vec![] }
    }

    /// Runs the program on a terminal that is wide enough for each row. If it asks, it gets this answer.
    pub(crate) async fn run_on_terminal(&mut self, args: &[&str], answer: &str) -> Ran {
        let mut terminal = self.terminal(200, args);
        if terminal.shows("[y/N] ").await {
            terminal.type_in(answer).await;
        }
        terminal.ended(&mut self.ids).await
    }

    /// The result of a call that was begun.
    pub(crate) async fn ended(&mut self, child: Child) -> Ran {
        shown(child.wait_with_output().await.unwrap(), &mut self.ids)
    }

    /// Runs the program to its end.
    pub(crate) async fn run(&mut self, args: &[&str]) -> Ran {
        let command = self.command(args);
        ran(command, &mut self.ids).await
    }

    /// As [`run`](Self::run), with this on standard input.
    pub(crate) async fn run_with(&mut self, args: &[&str], input: &str) -> Ran {
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        self.ended(child).await
    }
}

/// The program on a terminal, with what it has written so far.
#[derive(Debug)]
pub(crate) struct Terminal {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    written: Vec<u8>,
}

impl Terminal {
    /// Waits until this was written. False if the program has ended without it.
    pub(crate) async fn shows(&mut self, text: &str) -> bool {
        loop {
            if self.written.windows(text.len()).any(|part| part == text.as_bytes()) {
                return true;
            }
            if self.stdout.read_buf(&mut self.written).await.unwrap() == 0 {
                return false;
            }
        }
    }

    async fn type_in(&mut self, answer: &str) {
        self.stdin.write_all(answer.as_bytes()).await.unwrap();
    }

    /// The result, at the end of the program.
    pub(crate) async fn ended(mut self, ids: &mut Vec<String>) -> Ran {
        self.stdout.read_to_end(&mut self.written).await.unwrap();
        let (status, stderr) = (self.child.wait().await.unwrap(), vec![]);
        shown(std::process::Output { status, stdout: self.written, stderr }, ids)
    }
}

/// Interrupts a program as Ctrl+C does.
pub(crate) async fn interrupt(program: &Child) {
    let id = program.id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().await.unwrap().success());
}

/// The program with these arguments, without a database.
pub(crate) fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scoop"));
    configure(&mut command, args);
    command
}

/// Gives a command its arguments, and none of the settings of this process.
fn configure(command: &mut Command, args: &[&str]) {
    for name in ["DATABASE_URL", "SCOOP_SCHEMA", "NO_COLOR", "USER", "COLUMNS"] {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
}

/// Runs the program to its end.
pub(crate) async fn ran(mut command: Command, ids: &mut Vec<String>) -> Ran {
    shown(command.output().await.unwrap(), ids)
}

fn shown(output: std::process::Output, ids: &mut Vec<String>) -> Ran {
    let text = |bytes| String::from_utf8(bytes).expect("the output is UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    let code = output.status.code().expect("the program ends by itself");
    let mut shown = String::new();
    if code != 0 {
        shown += &format!("exit {code}\n");
    }
    shown += &normalized(&stdout, ids);
    shown.extend(normalized(&stderr, ids).lines().map(|line| format!("2> {line}\n")));
    Ran { code, stdout, stderr, shown }
}

/// Replaces ids by short names in the order of their first appearance, times, durations and places, which differ from one
/// execution to the next; and joins spaces, whose number depends on these.
fn normalized(text: &str, ids: &mut Vec<String>) -> String {
    let mut normalized = String::new();
    for line in text.lines() {
        let mut words = String::new();
        let mut rest = line;
        let mut before = ' ';
        while let Some(char) = rest.chars().next() {
            let begins = !before.is_ascii_alphanumeric();
            if let Some((replacement, length)) = begins.then(|| variable(rest, ids)).flatten() {
                words += &replacement;
                rest = &rest[length..];
                before = 'x';
                continue;
            }
            if !(char == ' ' && before == ' ') {
                words.push(char);
            }
            before = char;
            rest = &rest[char.len_utf8()..];
        }
        normalized += words.trim_end();
        normalized.push('\n');
    }
    normalized
}

/// The replacement of what a text begins with, and the length of that.
fn variable(text: &str, ids: &mut Vec<String>) -> Option<(String, usize)> {
    const TIME: &str = "dddd-dd-ddTdd:dd:dd.dddZ";
    let fits = |pattern: &str| {
        text.len() >= pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, wanted)| match wanted {
                b'd' => byte.is_ascii_digit(),
                wanted => byte == wanted,
            })
    };
    if fits(TIME) {
        return Some(("<time>".into(), TIME.len()));
    }
    if let Some(id) = text.get(..36).filter(|id| Uuid::try_parse(id).is_ok()) {
        let number = ids.iter().position(|known| known == id).unwrap_or_else(|| {
            ids.push(id.to_owned());
            ids.len() - 1
        });
        return Some((format!("<id {}>", number + 1), 36));
    }
    for field in [r#"queued_ms":"#, r#"took_ms":"#] {
        let number = text.strip_prefix(field).unwrap_or_default();
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            return Some((format!("{field}<duration>"), field.len() + digits));
        }
    }
    // The name of the program under test, in its connections.
    if let Some(hash) = text.strip_prefix("cli-") {
        let name = hash.split('/').next().unwrap_or_default();
        return Some(("<program>".into(), "cli-".len() + name.len()));
    }
    let word = text.split(|char: char| !char.is_ascii_alphanumeric()).next().unwrap_or_default();
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if matches!(word.len(), 33 | 49 | 161) && is_hex(&word[1..]) {
        return Some(("<place>".into(), word.len()));
    }
    // A number with a unit, perhaps with a second one.
    let digits =
        text.find(|char: char| !(char.is_ascii_digit() || char == '.')).filter(|length| *length > 0)?;
    let after = &text[digits..];
    let unit = [" ms", " s", " min", " h", " d", "ms", "s", "m"].into_iter().find(|unit| {
        after.starts_with(unit) && !after[unit.len()..].starts_with(|next: char| next.is_ascii_alphanumeric())
    })?;
    Some(("<duration>".into(), digits + unit.len()))
}
