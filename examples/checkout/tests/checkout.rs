//! Runs the example `checkout`, kills it at random moments, and demands that its books balance.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, SystemTime};

use scoop::embedded::Embedded;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

const EXAMPLE: &str = env!("CARGO_BIN_EXE_checkout");

/// How long the example may go without a line of progress before it counts as hung.
const RETRY_FOR: Duration = Duration::from_secs(60);

#[test]
fn the_shop_that_ships_balances_its_books() {
    let (folder, database) = (Folder::new("ships"), Database::of_the_machine("ships"));
    let mut command = Command::new(EXAMPLE);
    command.arg("--state").arg(&folder.0);
    let output = on(database.as_ref(), &mut command).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("the books balance"), "{text}");
    for outcome in ["Declined", "Discontinued", "NotServed", "OutOfStock", "Withdrawn"] {
        assert!(text.contains(outcome), "no order was {outcome}:\n{text}");
    }
}

#[test]
fn killed_example_finishes_the_work_after_a_restart() {
    let mut random = Random::seeded();
    let folder = Folder::new("kill");
    write_shop(&folder.0.join("data"), &mut random, 120);
    let database = Database::of_the_machine("kill");
    let mut killed = 0;
    while killed < 4 {
        let mut running = Running::start(&folder.0, database.as_ref());
        let lines = 1 + random.below(6);
        if !running.progresses(lines) {
            break; // It has finished.
        }
        // Progress is shown ten times a second: any moment until the next line will do.
        std::thread::sleep(Duration::from_millis(random.below(100)));
        running.kill();
        killed += 1;
    }
    println!("killed {killed} times");
    let output = Running::start(&folder.0, database.as_ref()).finish();
    assert!(output.contains("the books balance"), "{output}");
    assert_charged_once(&folder.0.join("ledger.csv"));
}

#[test]
fn several_processes_share_the_work() {
    let mut random = Random::seeded();
    let folder = Folder::new("share");
    write_shop(&folder.0.join("data"), &mut random, 60);
    let database = Database::of_the_machine("share").unwrap_or_else(Database::private);
    let start = || Running::start(&folder.0, Some(&database));
    let (mut victim, survivors) = (start(), [start(), start()]);
    victim.progresses(2);
    victim.kill();
    for survivor in survivors {
        let output = survivor.finish();
        assert!(output.contains("the books balance"), "{output}");
    }
    assert_charged_once(&folder.0.join("ledger.csv"));
}

#[test]
fn served_shop_goes_on_until_it_is_interrupted_and_then_balances_its_books() {
    let (folder, database) = (Folder::new("serves"), Database::of_the_machine("serves"));
    let mut command = Command::new(EXAMPLE);
    command.args(["--serve", "--every", "20ms", "--state"]).arg(&folder.0);
    let mut running = Running::spawn(on(database.as_ref(), &mut command));
    while running.placed() < 40 {
        assert!(running.progresses(1), "it ends:\n{}", running.log);
    }
    running.interrupt();
    let output = running.finish();
    // The provider has refused the first refund, and no operator has retried it.
    assert!(output.contains("awaiting an operator: order 2"), "{output}");
    assert!(output.contains("the books balance"), "{output}");
    assert_charged_once(&folder.0.join("ledger.csv"));
}

#[test]
fn served_shop_that_is_interrupted_before_its_orders_have_ended_closes_at_once() {
    let mut random = Random::seeded();
    let folder = Folder::new("interrupted");
    write_shop(&folder.0.join("data"), &mut random, 500);
    let database = Database::of_the_machine("interrupted");
    let mut command = Command::new(EXAMPLE);
    command.args(["--serve", "--data"]).arg(folder.0.join("data")).arg("--state").arg(&folder.0);
    let mut running = Running::spawn(on(database.as_ref(), &mut command));
    assert!(running.progresses(1), "it ends:\n{}", running.log);
    running.interrupt();
    let output = running.finish();
    assert!(output.contains("the shop closes before its first orders have ended"), "{output}");
}

/// A database for one test.
struct Database {
    runtime: tokio::runtime::Runtime,
    url: String,
    /// The server, if it is our own and vanishes with its data. Otherwise the access to drop the database.
    server: Result<Embedded, (String, String)>,
}

impl Database {
    /// Creates one on the server of `DATABASE_URL`. Without that the example starts its own server.
    fn of_the_machine(name: &str) -> Option<Self> {
        let admin = std::env::var("DATABASE_URL").ok()?;
        let name = format!("checkout_{name}_{}", std::process::id());
        let (server, _) = admin.rsplit_once('/').expect("DATABASE_URL names a database");
        let url = format!("{server}/{name}");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(execute(&admin, format!("CREATE DATABASE {name}")));
        Some(Self { runtime, url, server: Err((admin, name)) })
    }

    /// The database of a server of our own.
    fn private() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let server = runtime.block_on(Embedded::start()).unwrap();
        Self { runtime, url: server.url(), server: Ok(server) }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Err((admin, name)) = &self.server {
            self.runtime.block_on(execute(admin, format!("DROP DATABASE {name} WITH (FORCE)")));
        }
    }
}

async fn execute(url: &str, statement: String) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
}

/// Runs the program on this database, or else on a server of its own.
fn on<'a>(database: Option<&Database>, command: &'a mut Command) -> &'a mut Command {
    match database {
        Some(database) => command.env("DATABASE_URL", &database.url),
        None => command.env_remove("DATABASE_URL"),
    }
}

/// `cargo test` builds the examples beside the tests.
/// A running example.
struct Running {
    child: Child,
    progress: Receiver<String>,
    log: String,
}

impl Running {
    fn start(folder: &Path, database: Option<&Database>) -> Self {
        let mut command = Command::new(EXAMPLE);
        command.args(["--stock-times", "3", "--data"]);
        command.arg(folder.join("data")).arg("--state").arg(folder);
        Self::spawn(on(database, &mut command))
    }

    fn spawn(command: &mut Command) -> Self {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let progress = lines_of(child.stderr.take().unwrap());
        let log = String::new();
        Self { child, progress, log }
    }

    /// Waits for so many lines of progress. Returns whether they came before the end.
    fn progresses(&mut self, lines: u64) -> bool {
        (0..lines).all(|_| match self.progress.recv_timeout(RETRY_FOR) {
            Ok(line) => {
                writeln!(self.log, "{line}").unwrap();
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("it hangs:\n{}", self.log),
        })
    }

    /// The number of placed orders by the last line of progress, once the given ones have ended; 0 before.
    fn placed(&self) -> u64 {
        let last = self.log.lines().last().and_then(|line| line.split_once(" orders placed"));
        last.and_then(|(placed, _)| placed.parse().ok()).unwrap_or_default()
    }

    /// Ends the example as Ctrl+C does.
    fn interrupt(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end, which must be a success, and returns the output.
    fn finish(mut self) -> String {
        while self.progresses(1) {}
        let mut output = String::new();
        let stdout = self.child.stdout.as_mut().unwrap();
        stdout.read_to_string(&mut output).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{}\n{output}", self.log);
        output
    }
}

/// A failed test must not leave the process behind.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(stderr: ChildStderr) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// Asserts that every key is in the ledger once, and no order is charged or refunded twice.
fn assert_charged_once(ledger: &Path) {
    let text = fs::read_to_string(ledger).unwrap();
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        let columns: Vec<_> = line.splitn(4, ',').collect();
        let [payment, order, cents, key] = columns[..] else {
            panic!("what is this line? {line}");
        };
        let kind = if cents.starts_with('-') { "refund" } else { "charge" };
        for fact in [key.to_owned(), format!("{kind} {payment}"), format!("{kind} of {order}")] {
            assert!(seen.insert(fact), "twice in the ledger: {line}\n{text}");
        }
    }
    assert!(!seen.is_empty(), "no order was charged");
}

/// A shop of its own for a test, large enough to be killed in the middle.
fn write_shop(folder: &Path, random: &mut Random, orders: u64) {
    let mut products = String::from("header\n");
    for product in 1..=20 {
        let (units, discontinued) = (random.below(60), u8::from(product % 10 == 0));
        writeln!(products, "{product},Part {product},1,1,1,9.99,{units},0,0,{discontinued}").unwrap();
    }
    let (mut placed, mut lines) = (String::from("header\n"), String::from("header\n"));
    for order in 1..=orders {
        let country = ["France", "Brazil", "Ireland", "Norway"][random.index(4)];
        let shipper = 1 + random.below(3);
        writeln!(placed, "{order},C,1,-,-,-,{shipper},0,N,Street 1,City,-,0,{country}").unwrap();
        for line in 0..=random.below(3) {
            let (product, units) = (1 + line * 5 + random.below(5), 1 + random.below(9));
            let price = random.below(300);
            writeln!(lines, "{order},{product},{price}.5,{units},0.05").unwrap();
        }
    }
    fs::create_dir_all(folder).unwrap();
    for (name, text) in [("products", products), ("orders", placed), ("order-details", lines)] {
        fs::write(folder.join(name).with_extension("csv"), text).unwrap();
    }
}

/// A folder that is removed after the test, in a place that the user of the database can enter.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("scoop-checkout-test-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// SplitMix64. `SCOOP_SEED` repeats the seed that a failed test printed.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let chosen = std::env::var("SCOOP_SEED").ok().map(|seed| seed.parse().unwrap());
        let seed = chosen.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            u64::from(now.subsec_nanos())
        });
        println!("SCOOP_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn index(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap();
        usize::try_from(self.below(end)).unwrap()
    }
}
