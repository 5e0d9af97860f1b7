//! The texts of the help, in a file for reading.

use expect_test::expect_file;

use crate::support::{program, ran};

#[tokio::test]
async fn help_texts_are_those_of_the_file() {
    let main = ran(program(&["--help"]), &mut vec![]).await.stdout;
    let commands =
        main.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A line that begins later continues the text of the one before.
    let commands = commands.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    let commands: Vec<_> = commands.filter_map(|line| line.split(' ').next()).collect();
    let mut all = main.clone();
    for command in commands.into_iter().filter(|command| *command != "help") {
        let help = ran(program(&[command, "--help"]), &mut vec![]).await.stdout;
        // The options of all commands are in the help of the program.
        let own = help.split("\nConnection:").next().unwrap_or_default();
        all += &format!("\n---- scoop {command} --help\n{own}");
    }
    expect_file!["help.txt"].assert_eq(&all);
}

#[tokio::test]
async fn completions_and_manual_name_all_commands() {
    for (shell, part) in [("bash", "complete -F"), ("zsh", "#compdef scoop"), ("fish", "complete -c scoop")] {
        let ran = ran(program(&["completions", shell]), &mut vec![]).await;
        assert!(ran.code == 0 && ran.stdout.contains(part) && ran.stdout.contains("rollback"), "{shell}");
    }
    let page = ran(program(&["man"]), &mut vec![]).await;
    assert!(page.code == 0 && page.stdout.contains(".TH scoop 1"), "{}", page.stdout);
    for command in ["doctor", "explain"] {
        assert!(page.stdout.contains(&format!("scoop\\-{command}(1)")), "{command}");
    }
    let dir = std::env::temp_dir().join(format!("scoop-man-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    assert_eq!(ran(program(&["man", "--dir", dir.to_str().unwrap()]), &mut vec![]).await.code, 0);
    let explain = std::fs::read_to_string(dir.join("scoop-explain.1")).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(explain.contains("what would end that"), "{explain}");
}
