UPDATE `polylock` SET
    fence = LAST_INSERT_ID(IF(
        owner = ? AND deadline > UTC_TIMESTAMP(6),
        fence,
        GREATEST(fence + 1, CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS UNSIGNED))
    )),
    owner = ?,
    label = ?,
    deadline = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
    version = version + 1
WHERE name = ? AND (
    (deadline <= UTC_TIMESTAMP(6) AND waiting = 0)
    OR (owner = ? AND deadline > UTC_TIMESTAMP(6))
)
