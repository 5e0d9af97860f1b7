//! The queries of the page about the tables: each answers, and reads by the indexes that it names.

use sqlx::{AssertSqlSafe, Executor, Row};

use super::*;
use crate::support::Database;

const PAGE: &str = include_str!("../../../docs/reference/tables.md");

/// Replies in place of its message, and fails on demand.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "tables.order", reply = u32)]
struct Order {
    fails: bool,
}

handler! {
    Desk: "desk" on Order;
    step "launch" launch => launches(Child);

    #[step(name = "answer")]
    async fn answer(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
        scope.reply(order, 7)?;
        if order.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

handler! {
    ChildHandler: "child" on Child;
    step "0" zero [rollback = undo] => done();
    rollback undo => fails(SIMULATED);
}

/// A query of the page.
struct Query {
    text: &'static str,
    /// What its parameters are, in their order.
    parameters: Vec<&'static str>,
    indexes: Vec<&'static str>,
}

/// The first line of each is `-- $1 hierarchy, $2 run; by index, index`.
fn queries() -> Vec<Query> {
    let blocks = PAGE.split("```sql\n").skip(1).map(|rest| rest.split_once("```").expect("it ends").0);
    blocks
        .map(|text| {
            let (head, _) =
                text.strip_prefix("-- ").and_then(|text| text.split_once('\n')).expect("it has a head");
            let (parameters, indexes) = head.rsplit_once("by ").expect("it names its indexes");
            let parameters = parameters.trim_end_matches([' ', ';']).split(", ").filter(|it| !it.is_empty());
            let parameters = parameters.map(|it| it.split_once(' ').expect("a number, and what it is").1);
            Query { text, parameters: parameters.collect(), indexes: indexes.split(", ").collect() }
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_of_the_page_answer_and_read_by_the_indexes_that_they_name() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Desk>().only::<ChildHandler>().start().await?;
    let done = scoop.launch(Order { fails: false }).await?;
    assert_eq!(done.ends().await?, Outcome::Committed);
    let failed = scoop.launch(Order { fails: true }).await?;
    assert!(matches!(failed.ends().await?, Outcome::RollbackFailed(_)));
    let undone = scoop.launch(Child).await?;
    assert_eq!(undone.ends().await?, Outcome::Committed);
    // One that was rolled back without a failure of that.
    db.execute("UPDATE scoop.ended_run SET outcome = 'rolled_back', failure = '{\"type\": \"Out\", \"message\": \"out\"}' WHERE cardinality(lineage) = 2 AND handler = 'child'").await;

    // Other hierarchies, so that the planner has statistics of more than a few rows.
    db.execute(
        "INSERT INTO scoop.message_event (message_id, type, cooperation_lineage)
         SELECT gen_random_uuid(), 'EMITTED', ARRAY[gen_random_uuid()] FROM generate_series(1, 2000)",
    )
    .await;
    db.execute(
        "INSERT INTO scoop.found_by (found, name, value, number, root, launched_at)
         SELECT root, 'order', to_jsonb(n), 0, root, now()
         FROM (SELECT n, gen_random_uuid() AS root FROM generate_series(1, 2000) n) every",
    )
    .await;
    db.execute("ANALYZE").await;

    let queries = queries();
    assert_eq!(queries.len(), 11);
    for Query { text, parameters, indexes } in queries {
        let (of_failed, of_rolled_back) = (text.contains("scoop.runs "), text.contains("'rolled_back'"));
        let handle = if of_failed { &failed } else { &done };
        let run = handle.tree().await?.roots()[0].id();
        let value = |what: &&str| match *what {
            "hierarchy" => format!("'{}'", handle.id()),
            "run" => format!("'{run}'"),
            "saga" if of_rolled_back => "'child'".into(),
            "saga" => "'desk'".into(),
            "order" => "1000".into(),
            other => panic!("{other} is no parameter"),
        };
        let types = |what: &&str| match *what {
            "saga" => "text",
            "order" => "bigint",
            _ => "uuid",
        };
        let list = |values: Vec<String>| {
            if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) }
        };
        let values = list(parameters.iter().map(value).collect());
        let types = list(parameters.iter().map(|it| types(it).to_owned()).collect());
        let mut session = db.pool().acquire().await?;
        session.execute("SET enable_seqscan = off").await?;
        session.execute("SET plan_cache_mode = force_generic_plan").await?;
        session.execute(AssertSqlSafe(format!("PREPARE of_page {types} AS {text}"))).await?;
        let rows = session.fetch_all(AssertSqlSafe(format!("EXECUTE of_page {values}"))).await?;
        assert!(!rows.is_empty(), "no row of\n{text}");
        let plan = session.fetch_all(AssertSqlSafe(format!("EXPLAIN EXECUTE of_page {values}"))).await?;
        let plan: Vec<String> = plan.iter().map(|line| line.get(0)).collect();
        let plan = plan.join("\n");
        for index in indexes {
            assert!(plan.contains(&format!(" {index} ")), "{index} is not read by\n{text}\n{plan}");
        }
        let walked = plan.lines().find(|line| line.contains("Seq Scan"));
        assert!(walked.is_none(), "{walked:?} of\n{text}");
        session.execute("DEALLOCATE of_page; RESET ALL").await?;
    }
    Ok(())
}

/// The names in backticks.
fn quoted(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split('`').skip(1).step_by(2)
}

/// The columns that the page names, with their tables: those in the head of a list, or before it, or in the first cell of a row.
fn columns_of_the_page() -> Vec<(&'static str, &'static str)> {
    let (page, _) = PAGE.split_once("## JSON").expect("it has the formats of JSON");
    let (mut named, mut before, mut tables) = (vec![], vec![], vec![]);
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').skip(1).map(quoted).map(Iterator::collect::<Vec<_>>).collect();
        if let Some(table) = line.strip_prefix("`scoop.") {
            before = table.split('`').take(1).collect();
        } else if line.starts_with("| column of both") {
            tables = vec!["run", "ended_run"];
        } else if line.starts_with("| column of ") {
            tables = cells[0].clone();
        } else if line.starts_with("| column |") {
            tables = before.clone();
        } else if line.starts_with("| table |") {
            tables = vec!["each"];
        } else if line.is_empty() {
            tables = vec![];
        } else if tables == ["each"] && !cells.is_empty() {
            named.extend(
                cells[1].iter().flat_map(|column| cells[0].iter().map(move |table| (*table, *column))),
            );
        } else if !cells.is_empty() {
            named
                .extend(cells[0].iter().flat_map(|column| tables.iter().map(move |table| (*table, *column))));
        }
    }
    named
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_the_page_are_in_the_tables() -> Result<()> {
    let db = Database::new().await;
    let named = columns_of_the_page();
    assert!(named.len() > 90, "{named:?}");
    for (table, column) in named {
        let there = format!(
            "SELECT count(*) FROM information_schema.columns
             WHERE table_schema = 'scoop' AND table_name = '{table}' AND column_name = '{column}'"
        );
        assert_eq!(db.number(&there).await, 1, "{table} has no column {column}");
    }
    Ok(())
}
