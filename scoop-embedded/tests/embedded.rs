//! The private server leaves nothing behind, however its owner ends, and keeps its folder if requested.
//!
//! Owners that crash are child processes: this program, with a variable that selects the role (see [`child`]).

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use scoop_embedded::{Embedded, Shutdown};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

const ROLE: &str = "SCOOP_TEST_ROLE";
const FOLDER: &str = "SCOOP_TEST_FOLDER";
const PATIENCE: Duration = Duration::from_secs(30);

/// Skips the test on a machine that has no programs of PostgreSQL but another server, on which the rest of the
/// project is tested.
macro_rules! needs_programs {
    () => {
        if std::env::var_os("DATABASE_URL").is_some() && !Embedded::is_installed() {
            eprintln!("not tested: there is no PostgreSQL on this machine");
            return;
        }
    };
}

#[tokio::test]
async fn dropped_temporary_server_leaves_no_process_and_no_folder() {
    needs_programs!();
    let postgres = Embedded::start().await.unwrap();
    assert_eq!(number(&postgres.connect_options(), "SELECT 42").await, 42);
    let (pid, folder) = (postgres.process_id().unwrap(), postgres.folder().to_owned());
    assert!(alive(pid) && folder.is_dir());

    drop(postgres);
    assert!(!alive(pid), "dropping waits for the server");
    assert!(!folder.exists(), "dropping removes the folder");
}

#[tokio::test]
async fn stopping_ends_open_sessions() {
    needs_programs!();
    let postgres = Embedded::start().await.unwrap();
    let mut session = postgres.connect_options().connect().await.unwrap();
    let folder = postgres.folder().to_owned();

    postgres.stop().await.unwrap();
    assert!(session.ping().await.is_err());
    assert!(!folder.exists());
}

#[tokio::test]
async fn other_databases_and_other_clients_can_connect() {
    needs_programs!();
    let postgres = Embedded::start().await.unwrap();
    execute(&postgres.connect_options(), "CREATE DATABASE shop").await;
    assert_eq!(text(&postgres.options_for("shop"), "SELECT current_database()").await, "shop");

    let by_url: PgConnectOptions = postgres.url().parse().unwrap();
    assert_eq!(text(&by_url, "SHOW server_encoding").await, "UTF8");
    let psql = Command::new("psql").args([&postgres.url(), "-Atc", "SELECT 7"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&psql.stdout).trim(), "7", "{psql:?}");
}

#[tokio::test]
async fn settings_reach_the_server() {
    needs_programs!();
    let usual = Embedded::start().await.unwrap();
    assert_eq!(text(&usual.connect_options(), "SHOW fsync").await, "off");
    assert_eq!(text(&usual.connect_options(), "SHOW max_connections").await, "200");
    assert_eq!(text(&usual.connect_options(), "SHOW listen_addresses").await, "");

    let own = Embedded::builder().setting("fsync", "on").setting("port", "7").start().await.unwrap();
    assert_eq!(text(&own.connect_options(), "SHOW fsync").await, "on");
}

#[tokio::test]
async fn server_that_cannot_start_shows_its_log() {
    needs_programs!();
    let error = Embedded::builder().setting("no_such_setting", "1").start().await.unwrap_err().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
    let folder = error.split(['"', ' ', ':']).find(|word| word.contains("/scoop-postgres-")).unwrap();
    assert!(!Path::new(folder).exists());
}

#[tokio::test]
async fn committed_data_survives_both_restarts_and_a_crash() {
    needs_programs!();
    let postgres = Embedded::start().await.unwrap();
    let options = postgres.connect_options();
    execute(&options, "CREATE TABLE kept (n int)").await;

    for (n, how) in [(1, Shutdown::Fast), (2, Shutdown::Immediate)] {
        let before = postgres.process_id().unwrap();
        execute(&options, &format!("INSERT INTO kept VALUES ({n})")).await;
        postgres.restart(how).await.unwrap();
        assert_ne!(postgres.process_id().unwrap(), before);
        assert!(!alive(before));
        assert_eq!(number(&options, "SELECT count(*)::int FROM kept").await, n);
    }

    let crashed = postgres.process_id().unwrap();
    signal("KILL", crashed);
    eventually("the server has died", || postgres.process_id().is_none());
    postgres.restart(Shutdown::Fast).await.unwrap();
    assert_eq!(number(&options, "SELECT count(*)::int FROM kept").await, 2);

    let folder = postgres.folder().to_owned();
    postgres.stop().await.unwrap();
    assert!(!folder.exists());
}

#[tokio::test]
async fn standby_has_committed_data_and_takes_over() {
    needs_programs!();
    // Commits wait until a standby has applied them.
    let builder = Embedded::builder().setting("synchronous_standby_names", "*");
    let first = builder.setting("synchronous_commit", "remote_apply").start().await.unwrap();
    let second = first.standby().await.unwrap();
    execute(&first.connect_options(), "CREATE TABLE kept AS SELECT 1 AS n").await;
    let count = "SELECT count(*)::int FROM kept";
    assert_eq!(number(&second.connect_options(), count).await, 1);

    let folder = first.folder().to_owned();
    signal("KILL", first.process_id().unwrap());
    drop(first);
    assert!(!folder.exists());
    // The promoted standby can be restarted, and have a standby of its own.
    execute(&second.connect_options(), "SELECT pg_promote()").await;
    second.restart(Shutdown::Immediate).await.unwrap();
    let third = second.standby().await.unwrap();
    execute(&second.connect_options(), "INSERT INTO kept VALUES (2)").await;
    assert_eq!(number(&third.connect_options(), count).await, 2);

    let folders = [second.folder().to_owned(), third.folder().to_owned()];
    drop((second, third));
    assert!(folders.iter().all(|folder| !folder.exists()));
}

#[tokio::test]
async fn kept_data_survives_a_stop() {
    needs_programs!();
    let home = Scratch::new("kept");
    let first = Embedded::start_in(&home.0).await.unwrap();
    assert_eq!(text(&first.connect_options(), "SHOW fsync").await, "on");
    execute(&first.connect_options(), "CREATE TABLE kept AS SELECT 1 AS n").await;
    first.stop().await.unwrap();

    let second = Embedded::start_in(&home.0).await.unwrap();
    assert_eq!(number(&second.connect_options(), "SELECT n FROM kept").await, 1);
}

#[tokio::test]
async fn folder_too_deep_for_a_socket_works() {
    needs_programs!();
    let home = Scratch::new("deep");
    let deep = home.0.join("a-rather-long-name/".repeat(8)).join("a comma, and \"quotes\"");
    let postgres = Embedded::start_in(&deep).await.unwrap();
    assert_eq!(number(&postgres.connect_options(), "SELECT 1").await, 1);
    let socket = postgres.connect_options().get_socket().unwrap().clone();
    assert!(socket.is_dir());
    postgres.restart(Shutdown::Immediate).await.unwrap();
    assert_eq!(number(&postgres.connect_options(), "SELECT 1").await, 1);

    postgres.stop().await.unwrap();
    assert!(!socket.exists() && deep.is_dir());
}

#[tokio::test]
async fn second_owner_of_a_folder_gets_an_error_that_names_the_server() {
    needs_programs!();
    let home = Scratch::new("owned");
    let owner = Owner::start("keep", &home.0);
    let error = Embedded::start_in(&home.0).await.unwrap_err().to_string();
    assert!(error.contains(&*home.0.to_string_lossy()), "{error}");
    assert!(error.contains(&format!("PID {}", owner.server)), "{error}");
    assert!(alive(owner.server));
}

#[tokio::test]
async fn folder_with_other_files_is_refused() {
    needs_programs!();
    let home = Scratch::new("foreign");
    fs::create_dir(&home.0).unwrap();
    fs::write(home.0.join("letter.txt"), "dear").unwrap();
    let error = Embedded::start_in(&home.0).await.unwrap_err().to_string();
    assert!(error.contains("holds other files"), "{error}");
}

#[tokio::test]
async fn data_of_another_version_names_it() {
    needs_programs!();
    let home = Scratch::new("version");
    fs::create_dir_all(home.0.join("data")).unwrap();
    fs::write(home.0.join("data/PG_VERSION"), "9\n").unwrap();
    let error = Embedded::start_in(&home.0).await.unwrap_err().to_string();
    assert!(error.contains("no PostgreSQL 9, which made the data, found"), "{error}");
}

/// The user that runs the server may write to the folder, which is closed to all others.
#[tokio::test]
async fn files_in_the_folder_are_those_of_the_user_of_the_server() {
    needs_programs!();
    let home = Scratch::new("files");
    let postgres = Embedded::start_in(&home.0).await.unwrap();
    let owner = fs::metadata(home.0.join("data")).unwrap().uid();
    assert_ne!(owner, 0);
    assert_eq!(fs::metadata(&home.0).unwrap().mode() & 0o777, 0o700);
    for file in fs::read_dir(postgres.folder()).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().uid(), owner);
    }
}

/// Root's server runs as another user, which has to reach the folder. Other users simply may not create one there.
#[tokio::test]
async fn folder_below_a_closed_one_is_refused() {
    needs_programs!();
    let home = Scratch::new("closed");
    fs::create_dir(&home.0).unwrap();
    let we_are_root = id_of_user() == "0";
    let mode = if we_are_root { 0o700 } else { 0o500 };
    fs::set_permissions(&home.0, PermissionsExt::from_mode(mode)).unwrap();

    let error = Embedded::start_in(home.0.join("below")).await.unwrap_err().to_string();
    let says = if we_are_root { "since it refuses to run as root" } else { "could not make the folder" };
    assert!(error.contains(says) && error.contains(&*home.0.to_string_lossy()), "{error}");
}

#[tokio::test]
async fn killed_owner_leaves_no_server_and_a_usable_folder() {
    needs_programs!();
    let home = Scratch::new("killed");
    let mut owner = Owner::start("keep", &home.0);
    owner.kill();

    // Without a pause: the former server may still be stopping.
    let next = Embedded::start_in(&home.0).await.unwrap();
    assert!(!alive(owner.server));
    assert_eq!(number(&next.connect_options(), "SELECT n FROM made_by_child").await, 1);
}

/// A surviving child of the owner must not hold the pipe open.
#[test]
fn killed_owner_with_children_leaves_neither_server_nor_temporary_folder() {
    needs_programs!();
    let mut owner = Owner::start("keep with a child", Path::new(""));
    let sleeper = owner.sleeper.unwrap();
    assert!(alive(sleeper));
    owner.kill();
    owner.assert_nothing_left();
    assert!(alive(sleeper));
    signal("KILL", sleeper);
}

#[test]
fn owner_that_panics_leaves_nothing() {
    needs_programs!();
    let mut owner = Owner::start("panic", Path::new(""));
    assert!(!owner.child.wait().unwrap().success());
    owner.assert_nothing_left();
}

#[test]
fn owner_that_exits_leaves_nothing() {
    needs_programs!();
    let mut owner = Owner::start("exit", Path::new(""));
    assert_eq!(owner.child.wait().unwrap().code(), Some(3));
    owner.assert_nothing_left();
}

#[test]
fn supervisor_ignores_signals_of_a_terminal() {
    needs_programs!();
    let mut owner = Owner::start("keep", Path::new(""));
    for name in ["INT", "HUP", "TERM"] {
        signal(name, owner.supervisor);
    }
    assert!(alive(owner.supervisor) && alive(owner.server));
    owner.kill();
    owner.assert_nothing_left();
}

#[test]
fn owner_that_is_killed_while_the_data_is_made_leaves_nothing() {
    needs_programs!();
    let temporary = Scratch::new("begun");
    fs::create_dir(&temporary.0).unwrap();
    fs::set_permissions(&temporary.0, PermissionsExt::from_mode(0o777)).unwrap();
    let mut child = child("keep", Path::new("")).env("TMPDIR", &temporary.0).spawn().unwrap();
    let has_begun = || {
        let mut made = fs::read_dir(&temporary.0).unwrap().flatten();
        made.any(|folder| folder.path().join("server.log").exists())
    };
    eventually("the script has begun", has_begun);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("its folder is removed", || fs::read_dir(&temporary.0).unwrap().next().is_none());
}

#[test]
fn error_without_programs_names_the_remedy() {
    let empty = Scratch::new("empty");
    fs::create_dir(&empty.0).unwrap();
    let output = child("fail", Path::new("")).env("SCOOP_PG_BIN", &empty.0).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error =
        said.lines().find(|line| line.contains("no PostgreSQL")).unwrap_or_else(|| panic!("{output:?}"));
    for part in [
        "install it, such as by `",
        "in SCOOP_PG_BIN",
        &*empty.0.to_string_lossy(),
        "has no working `postgres`",
        "DATABASE_URL",
    ] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
}

/// The main function of the child processes; it does nothing in a run of the tests themselves.
#[tokio::test]
async fn child_main() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let folder = std::env::var_os(FOLDER).filter(|folder| !folder.is_empty());
    let started = match folder {
        Some(folder) => Embedded::start_in(folder).await,
        None => Embedded::start().await,
    };
    let postgres = match started {
        Ok(postgres) => postgres,
        Err(error) => return println!("{error}"),
    };
    execute(&postgres.connect_options(), "CREATE TABLE made_by_child AS SELECT 1 AS n").await;
    let sleeper = (role == "keep with a child").then(|| Command::new("sleep").arg("600").spawn().unwrap());
    // The test harness has begun a line, which this ends.
    println!();
    println!(
        "STARTED {} {} {}",
        postgres.process_id().unwrap(),
        sleeper.map_or(0, |sleeper| sleeper.id()),
        postgres.folder().display()
    );
    match &*role {
        "panic" => panic!("requested by the test"),
        "exit" => std::process::exit(3),
        _ => std::future::pending().await,
    }
}

fn child(role: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_main", "--nocapture"]).env(ROLE, role).env(FOLDER, folder);
    command
}

/// A child that owns a server.
struct Owner {
    child: Child,
    server: u32,
    supervisor: u32,
    sleeper: Option<u32>,
    folder: PathBuf,
    /// Kept open, since the child may still write.
    _output: BufReader<ChildStdout>,
}

impl Owner {
    fn start(role: &str, folder: &Path) -> Self {
        let mut child = child(role, folder).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let started = output.by_ref().lines().map(Result::unwrap).find(|line| line.starts_with("STARTED "));
        let started = started.expect("the child's server starts");
        let [_, server, sleeper, folder] = *started.splitn(4, ' ').collect::<Vec<_>>() else {
            panic!("{started}")
        };
        let server = server.parse().unwrap();
        Self {
            supervisor: parent_of(server).unwrap_or(0),
            sleeper: sleeper.parse().ok().filter(|pid| *pid != 0),
            folder: folder.into(),
            server,
            child,
            _output: output,
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn assert_nothing_left(&self) {
        eventually("the server stops", || !alive(self.server));
        eventually("its folder is removed", || !self.folder.exists());
        eventually("the supervisor ends", || !alive(self.supervisor));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Otherwise a folder would be removed while the server still writes there.
        let deadline = Instant::now() + PATIENCE;
        while alive(self.supervisor) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The path of a folder for kept data, below one that all users may enter. Removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir()
            .canonicalize()
            .unwrap()
            .join(format!("scoop-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn connect(options: &PgConnectOptions) -> PgConnection {
    PgConnection::connect_with(options).await.unwrap()
}

async fn execute(options: &PgConnectOptions, sql: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connect(options).await).await.unwrap();
}

async fn number(options: &PgConnectOptions, sql: &'static str) -> i32 {
    sqlx::query_scalar(sql).fetch_one(&mut connect(options).await).await.unwrap()
}

async fn text(options: &PgConnectOptions, sql: &'static str) -> String {
    sqlx::query_scalar(sql).fetch_one(&mut connect(options).await).await.unwrap()
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process exists and is no zombie.
fn alive(pid: u32) -> bool {
    ps(&["-o", "stat=", "-p", &pid.to_string()]).first().is_some_and(|state| !state.starts_with('Z'))
}

fn parent_of(pid: u32) -> Option<u32> {
    ps(&["-o", "ppid=", "-p", &pid.to_string()]).first()?.parse().ok()
}

fn ps(arguments: &[&str]) -> Vec<String> {
    let output = Command::new("ps").args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim().to_owned()).collect()
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

fn id_of_user() -> String {
    let output = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
