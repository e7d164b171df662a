#!/usr/bin/env bash
# Start what Spark on Kubernetes asks of a container: "driver …" or "executor …". Other arguments go to karrot.
set -euo pipefail

SPARK_HOME=$(python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')
export SPARK_HOME

case ${1-} in
driver)
    shift
    exec spark-submit --deploy-mode client --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
executor)
    # Spark passes the options of the JVM as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on.
    options=()
    while [[ -v SPARK_JAVA_OPT_${#options[@]} ]]; do
        option=SPARK_JAVA_OPT_${#options[@]}
        options+=("${!option}")
    done
    exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec karrot "$@"
    ;;
esac
