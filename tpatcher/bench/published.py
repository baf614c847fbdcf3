"""The numbers that the paper printed (Tables 1, 2 and 7)."""

METRICS = ("SR", "GR", "ER", "TrainR", "TestR")

# Table 1: editor -> (FEVER fact-checking with BERT-base, zsRE question answering with BART-base)
TABLE_1: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ft-last": ((1.00, 0.61, 0.59, 0.893, 0.946), (1.00, 0.58, 0.30, 0.914, 0.924)),
    "ft-all": ((1.00, 0.74, 0.83, 0.968, 0.994), (1.00, 0.68, 0.43, 0.865, 0.910)),
    "ft-last-kl": ((1.00, 0.53, 0.45, 0.968, 0.998), (1.00, 0.57, 0.28, 0.923, 0.933)),
    "ft-all-kl": ((1.00, 0.71, 0.49, 0.998, 1.011), (1.00, 0.68, 0.39, 0.889, 0.925)),
    "mend": ((0.04, 0.03, 0.06, 0.349, 0.652), (0.41, 0.37, 0.00, 0.000, 0.000)),
    "ke": ((0.14, 0.12, 0.28, 0.486, 0.650), (0.09, 0.08, 0.00, 0.000, 0.000)),
    "sera": ((1.00, 0.89, 1.00, 0.904, 0.916), (1.00, 0.90, 0.98, 0.906, 0.901)),
    "t-patcher": ((1.00, 0.82, 1.00, 0.999, 1.000), (1.00, 0.82, 0.99, 0.997, 0.996)),
}


def row(editor: str, task: str) -> dict[str, float] | None:
    """The paper's row for an editor on fact checking ("classify") or question answering."""
    if editor not in TABLE_1:
        return None
    return dict(zip(METRICS, TABLE_1[editor][0 if task == "classify" else 1], strict=True))
