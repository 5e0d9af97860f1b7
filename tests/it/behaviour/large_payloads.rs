//! Many large messages of one step or one call: no statement has all of them, and each payload is written once.

use std::time::Duration;

use scoop::embedded::Embedded;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use super::*;
use crate::support::{Database, eventually};

/// How many messages are launched, and how large each is.
const COUNT: usize = 8;
const BYTES: usize = 990_000;

/// How much the server may log for each byte of payload: the byte itself, and what belongs to its row.
const LOGGED_MAX: f64 = 1.3;

/// How a step launches what follows.
#[derive(Clone, Copy, Debug, Message, Serialize, Deserialize)]
#[message(topic = "large-payloads.batch")]
enum Launches {
    Children,
    WithDeadlines,
    Delayed,
    Detached,
    Required,
    InItsTransaction,
    DelayedInItsTransaction,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "large-payloads.bulk")]
struct Bulk(String);

/// Letters that no compression makes fewer.
fn bulk(nth: usize) -> Bulk {
    let mut state = u64::try_from(nth).expect("it is small") + 1;
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(letters[usize::try_from(state >> 58).expect("six bits")])
    };
    Bulk((0..BYTES).map(letter).collect())
}

#[derive(Default)]
struct Launcher;

#[saga(name = "large-payloads-launcher")]
#[subscribes(Launches)]
impl Launcher {
    #[step]
    async fn launch(&self, scope: &mut Scope<'_>, how: &Launches) -> Result<()> {
        if matches!(how, Launches::InItsTransaction | Launches::DelayedInItsTransaction) {
            sqlx::query("SELECT 1").execute(scope.tx().await?).await?;
        }
        for message in (0..COUNT).map(bulk) {
            match how {
                Launches::Children | Launches::InItsTransaction => scope.launch(message).await?,
                Launches::WithDeadlines => scope.launch(message).deadline(HOUR).await?,
                Launches::Delayed | Launches::DelayedInItsTransaction => {
                    scope.launch(message).delay(Duration::from_millis(1)).await?
                }
                Launches::Detached => scope.detach(message).await?,
                Launches::Required => scope.launch(message).required().await?,
            };
        }
        Ok(())
    }
}

const HOUR: Duration = Duration::from_secs(3_600);

handler! {
    Taker: "large-payloads-taker" on Bulk;
    step "take" take => done();
}

/// A server that has nothing else to do: what it writes to its log is counted for all of it.
struct Server {
    embedded: Embedded,
    admin: PgPool,
}

impl Server {
    async fn start() -> Result<Self> {
        let embedded = Embedded::start().await?;
        let admin = PgPoolOptions::new().max_connections(1).connect_with(embedded.connect_options()).await?;
        let server = Self { embedded, admin };
        server.program().await?.shutdown().await?;
        Ok(server)
    }

    async fn program(&self) -> Result<Scoop> {
        let pool = PgPoolOptions::new().connect_with(self.embedded.connect_options()).await?;
        Ok(Scoop::builder().postgres(pool).only::<Launcher>().only::<Taker>().start().await?)
    }

    async fn number(&self, sql: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(sql).fetch_one(&self.admin).await?)
    }

    /// The bytes of the log so far.
    async fn logged(&self) -> Result<i64> {
        self.number("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").await
    }

    /// The bytes of temporary files so far, as all sessions that have ended have reported.
    async fn temporary(&self) -> Result<i64> {
        let others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'
            AND pid <> pg_backend_pid()";
        eventually("the other sessions have ended", async || {
            self.number(others).await.is_ok_and(|others| others == 0)
        })
        .await;
        self.number("SELECT sum(temp_bytes)::bigint FROM pg_stat_database").await
    }

    /// Has a program launch large messages, which come to their end.
    async fn measure<T>(&self, what: &str, launch: impl AsyncFnOnce(&Scoop) -> Result<T>) -> Result<()> {
        let (logged, temporary) = (self.logged().await?, self.temporary().await?);
        let scoop = self.program().await?;
        launch(&scoop).await?;
        let left = "SELECT count(*) FROM scoop.run WHERE handler <> 'none'";
        eventually("all are handled", async || self.number(left).await.is_ok_and(|left| left == 0)).await;
        scoop.shutdown().await?;
        scoop.pool().close().await;
        drop(scoop);
        assert_eq!(self.temporary().await? - temporary, 0, "{what}: bytes of temporary files");
        let logged = i32::try_from(self.logged().await? - logged).map(f64::from)?;
        let ratio = logged / i32::try_from(COUNT * BYTES).map(f64::from)?;
        assert!(ratio < LOGGED_MAX, "{what}: {ratio} bytes in the log for each byte of payload");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_of_one_launch_are_written_once_without_temporary_files() -> Result<()> {
    if !Embedded::is_installed() {
        eprintln!("not tested: there is no PostgreSQL on this machine");
        return Ok(());
    }
    let server = Server::start().await?;
    for how in [
        Launches::Children,
        Launches::WithDeadlines,
        Launches::Delayed,
        Launches::Detached,
        Launches::Required,
        Launches::InItsTransaction,
        Launches::DelayedInItsTransaction,
    ] {
        let launch = async |scoop: &Scoop| {
            let launched = scoop.launch(how).await?;
            assert_eq!(launched.ends().await?, Outcome::Committed, "{how:?}");
            Ok(())
        };
        server.measure(&format!("{how:?}"), launch).await?;
    }
    let all = async |scoop: &Scoop| Ok(scoop.launch_all((0..COUNT).map(bulk)).await?);
    server.measure("launches of a program", all).await?;
    let client = |scoop: &Scoop| Scoop::client(scoop.pool().clone());
    let all = async |scoop: &Scoop| Ok(client(scoop).launch_all((0..COUNT).map(bulk)).await?);
    server.measure("launches of a client", all).await?;
    let required =
        async |scoop: &Scoop| Ok(client(scoop).launch_all((0..COUNT).map(bulk)).required().await?);
    server.measure("launches of a client that require a handler", required).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn large_launch_that_lacks_a_required_handler_leaves_no_message() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Launcher,)).await?;
    let launched = scoop.launch(Launches::Required).await?;
    let Outcome::RolledBack(failure) = launched.ends().await? else { panic!("no handler takes them") };
    assert_eq!(failure.kind, "NoHandler");
    let refused = db.client().launch_all((0..COUNT).map(bulk)).required().await;
    assert!(refused.is_err_and(|error| error.is_no_handler()));
    assert_eq!(db.number("SELECT count(*) FROM scoop.message WHERE topic = 'large-payloads.bulk'").await, 0);
    Ok(())
}
