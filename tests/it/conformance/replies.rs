//! Replies of children (scenarios RV).
//!
//! The reference implementation names a reply by a variable, Scoop by the type of the reply.

use super::*;
use crate::support::{Database, Notes};

/// The reply of a child; the name of the type is that of the variable.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct TestResult {
    answer: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "child-topic", reply = TestResult)]
struct Ask;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "child-topic-2", reply = TestResult)]
struct Ask2;

#[derive(Default)]
struct ChildHandler1;

#[saga(name = "ChildHandler1")]
#[subscribes(Ask)]
impl ChildHandler1 {
    #[step(name = "0")]
    async fn zero(&self, scope: &mut Scope<'_>, ask: &Ask) -> Result<()> {
        scope.reply(ask, TestResult { answer: 42 })
    }
}

#[derive(Default)]
struct ChildHandler2;

#[saga(name = "ChildHandler2")]
#[subscribes(Ask2)]
impl ChildHandler2 {
    #[step(name = "0")]
    async fn zero(&self, scope: &mut Scope<'_>, ask: &Ask2) -> Result<()> {
        scope.reply(ask, TestResult { answer: 43 })
    }
}

handler! {
    RootHandler { notes: Notes }: "root-handler" on Root;
    step "0" zero => launches(Ask).then(launches(Ask2));

    #[step(name = "1")]
    async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        for reply in scope.replies::<Ask>().await? {
            self.notes.add(format!("{}: {}", reply.handler, reply.value.answer));
        }
        for reply in scope.replies::<Ask2>().await? {
            self.notes.add(format!("{}: {}", reply.handler, reply.value.answer));
        }
        Ok(())
    }
}

const STORED: &str = "
    SELECT format('%s %s %s %s', cardinality(cooperation_lineage), handler_name, variable_name, value)
    FROM scoop.return_value ORDER BY handler_name";

async fn answers(db: &Database, notes: &Notes, scoop: scoop::Builder) -> Result<()> {
    let scoop = scoop.only::<RootHandler>().provide(RootHandler { notes: notes.clone() }).start().await?;
    let root = scoop.launch(Root).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    // The lineage of each is that of a run which saw the message.
    let sql =
        "SELECT count(*) FROM scoop.return_value v JOIN scoop.message_event e USING (cooperation_lineage)
               WHERE e.type = 'SEEN' AND e.coroutine_name = v.handler_name";
    assert_eq!(db.number(sql).await, db.number("SELECT count(*) FROM scoop.return_value").await);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rv_01_a_reply_reaches_the_step_after_the_one_that_asked() -> Result<()> {
    let db = Database::new().await;
    let notes = Notes::default();
    answers(&db, &notes, db.scoop().only::<ChildHandler1>()).await?;
    assert_eq!(notes.all(), ["ChildHandler1: 42"]);
    assert_eq!(db.texts(STORED).await, [r#"3 ChildHandler1 TestResult {"answer": 42}"#]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rv_02_replies_of_two_handlers_are_distinguished() -> Result<()> {
    let db = Database::new().await;
    let notes = Notes::default();
    answers(&db, &notes, db.scoop().only::<ChildHandler1>().only::<ChildHandler2>()).await?;
    assert_eq!(notes.all(), ["ChildHandler1: 42", "ChildHandler2: 43"]);
    let stored =
        [r#"3 ChildHandler1 TestResult {"answer": 42}"#, r#"3 ChildHandler2 TestResult {"answer": 43}"#];
    assert_eq!(db.texts(STORED).await, stored);
    Ok(())
}
