//! Parts of large trees: down to a depth, or so many runs.

use super::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "branches")]
struct Branch {
    levels_left: u32,
}

#[derive(Default)]
struct Branching;

#[saga(name = "branching")]
#[subscribes(Branch)]
impl Branching {
    #[step]
    async fn branch(&self, scope: &mut Scope<'_>, branch: &Branch) -> Result<()> {
        if let Some(levels_left) = branch.levels_left.checked_sub(1) {
            for _ in 0..3 {
                scope.launch(Branch { levels_left }).await?;
            }
        }
        Ok(())
    }
}

fn depths(tree: &Tree) -> Vec<usize> {
    let mut depths: Vec<_> = tree.runs().iter().map(|run| run.lineage.ids().len() - 1).collect();
    depths.sort_unstable();
    depths
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_has_as_many_runs_and_levels_as_are_asked_for() -> Result<()> {
    let run = Run::commits((Branching,), Branch { levels_left: 2 }).await?;

    let all = run.root.tree().await?;
    assert_eq!(depths(&all), [1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
    assert!(all.is_complete() && !all.to_string().contains("left out"));

    let above = run.root.tree().depth(2).await?;
    assert_eq!(depths(&above), [1, 2, 2, 2]);
    assert!(!above.is_complete() && above.to_string().contains("more runs are left out"), "{above}");
    assert!(run.root.tree().depth(3).await?.is_complete());

    let few = run.root.tree().limit(5).await?;
    assert_eq!(depths(&few), [1, 2, 2, 2, 3], "runs above come first");
    assert!(!few.is_complete());
    assert!(run.root.tree().limit(13).await?.is_complete());
    assert_eq!(depths(&run.root.tree().depth(2).limit(2).await?), [1, 2]);
    Ok(())
}
