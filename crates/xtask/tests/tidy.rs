//! The rules of the repository, held over the tree as it is.

use std::sync::OnceLock;

use xtask::workspace::{Violation, Workspace};
use xtask::{circles, documents, faults, layering, sizes, tidy, words};

fn workspace() -> &'static Workspace {
    static WORKSPACE: OnceLock<Workspace> = OnceLock::new();
    WORKSPACE.get_or_init(|| Workspace::read().expect("the repository is readable"))
}

/// One test for each rule, and the test that none is left out.
macro_rules! claims {
    ($($claim:ident: $rule:path;)*) => {
        $(
            #[test]
            fn $claim() {
                let found: Vec<String> = $rule(workspace()).iter().map(Violation::to_string).collect();
                assert!(found.is_empty(), "\n{}\n", found.join("\n"));
            }
        )*

        #[test]
        fn every_rule_has_a_claim() {
            assert_eq!(tidy::RULES.len(), [$(stringify!($claim)),*].len());
        }
    };
}

claims! {
    every_arrow_between_crates_is_in_the_table: layering::arrows;
    the_laboratory_and_benchmarks_are_optional_in_the_product: layering::tools_are_optional;
    pure_crates_and_the_data_path_link_nothing_they_must_not_know: layering::external_absences;
    pure_crates_mention_no_socket_no_file_and_no_clock: layering::mention_absences;
    the_data_path_knows_no_descriptor_and_no_storage_engine: layering::product_mention_absences;
    only_the_command_line_prints: layering::printing;
    unsafe_code_stays_where_system_calls_are_made: layering::unsafe_code;
    no_thread_is_asked_for_by_what_panics_without_one: layering::threads;
    no_more_files_are_in_circles_than_were: circles::files;
    code_is_finished_and_no_warning_is_silenced: words::code;
    no_text_marks_unfinished_work: words::text;
    no_file_holds_a_path_of_one_machine: words::machine_paths;
    no_file_names_a_package_registry: words::registry_hosts;
    every_module_has_a_telling_name: words::module_names;
    every_source_file_says_what_it_owns: words::openings;
    no_function_is_longer_than_its_limit: sizes::functions;
    no_file_is_longer_than_its_limit: sizes::files;
    no_large_blob_is_tracked: sizes::blobs;
    the_documents_a_reader_needs_exist: documents::are_present;
    the_pages_that_are_named_exist: documents::pages_exist;
    the_map_names_every_crate: documents::map_names_every_crate;
    the_root_has_only_what_it_should: documents::root_has_only_what_it_should;
    the_entry_of_ci_is_executable: documents::entry_is_executable;
    every_fault_is_held_by_a_test_or_trial_that_there_is: faults::are_held_by_what_there_is;
    every_finding_of_a_review_is_held_by_what_it_names: faults::findings_are_held;
}
